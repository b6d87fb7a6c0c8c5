# The engine, and what is needed to reach its node: name=…,node=…,host=…,profile=…[,port=…][,host_key=…].
terraform import moai_engine.prefill 'name=prefill-0,node=h100-0,host=192.0.2.11,profile=nvidia'
