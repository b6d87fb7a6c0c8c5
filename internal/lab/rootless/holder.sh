# holder: makes of fresh namespaces a place for a lab, says "ready PID", and stays.
set -eu
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/lock /run/systemd
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set dev lo up
# What stays and what enters live in leaves: the place's cgroup itself may then hand controllers down.
mkdir -p /sys/fs/cgroup/holder /sys/fs/cgroup/visitors
echo $$ >/sys/fs/cgroup/holder/cgroup.procs
for c in $(cat /sys/fs/cgroup/cgroup.controllers); do
  echo "+$c" >/sys/fs/cgroup/cgroup.subtree_control || : # kept by the machine: hosts then run without such limits
done 2>/dev/null
echo "ready $$"
exec sleep infinity </dev/null >/dev/null 2>&1
