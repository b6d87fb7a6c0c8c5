# What is needed to reach the machine; the machine says the rest itself. The form is name=…,host=…,profile=…[,port=…][,host_key=…]:
# the port if it is not 22, and the host's key unless ssh.known_hosts of the provider block has it.
terraform import moai_node.h100 'name=h100-0,host=192.0.2.11,profile=nvidia,host_key=ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample'
