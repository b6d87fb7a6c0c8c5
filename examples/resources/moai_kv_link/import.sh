# The two nodes, apart by a semicolon, each name=…,host=…,profile=…[,port=…][,host_key=…]; a link with a name of its own
# has it in front: 'main;name=…;name=…'.
terraform import moai_kv_link.main 'name=h100-0,host=192.0.2.11,profile=nvidia;name=mi300x-0,host=192.0.2.21,profile=amd'
