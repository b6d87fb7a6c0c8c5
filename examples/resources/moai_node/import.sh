# What is needed to reach the machine; the machine says the rest itself.
terraform import moai_node.h100 'name=h100-0,host=192.0.2.11,profile=nvidia'
