# Arguments: a nonce that no output contains, seconds for each tool. Reads only. What hangs comes last, so that a caller that loses
# patience has the rest.
nonce=$1 limit=$2
PATH=$PATH:/opt/rocm/bin
export PATH
have() { command -v "$1" >/dev/null 2>&1; }
bound=
have timeout && bound="timeout -k 1 $limit"
sec() {
	name=$1
	shift
	printf '\n@@%s begin %s\n' "$nonce" "$name"
	"$@" 2>&1
	printf '\n@@%s end %s %s\n' "$nonce" "$name" "$?"
}
tool() {
	name=$1
	shift
	if have "$1"; then
		sec "$name" $bound "$@"
	else
		printf '\n@@%s begin %s\n\n@@%s end %s 127\n' "$nonce" "$name" "$nonce" "$name"
	fi
}
pci() {
	if have lspci; then
		$bound lspci -Dnn
		return
	fi
	for d in /sys/bus/pci/devices/*; do
		[ -r "$d/class" ] || continue
		c=$(cat "$d/class") v=$(cat "$d/vendor") p=$(cat "$d/device")
		c=${c#0x}
		printf '%s Device [%s]: Device [%s:%s]\n' "${d##*/}" "${c%??}" "${v#0x}" "${p#0x}"
	done
}
speeds() {
	for d in /sys/class/net/*; do
		s=$(cat "$d/speed" 2>/dev/null) && printf '%s %s\n' "${d##*/}" "$s"
	done
	return 0
}
sec os-release cat /etc/os-release
sec uname uname -srm
sec machine-id cat /etc/machine-id
sec boot-id cat /proc/sys/kernel/random/boot_id
sec hostname uname -n
sec meminfo cat /proc/meminfo
sec init sh -c '[ -d /run/systemd/system ] && echo systemd || cat /proc/1/comm'
sec net-speed speeds
sec date date +%s
tool nproc nproc --all
tool systemd systemctl --version
tool ip ip -j addr
sec lspci pci
tool nvidia-smi nvidia-smi --query-gpu=index,name,uuid,pci.bus_id,memory.total,driver_version,mig.mode.current --format=csv
tool nvidia-smi-table nvidia-smi
tool amd-smi-version amd-smi version --json
tool amd-smi-static amd-smi static --json
printf '\n@@%s done\n' "$nonce"
