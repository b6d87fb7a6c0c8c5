# The router, and what is needed to reach its node: name=…,node=…,host=…,profile=…[,port=…][,host_key=…]. The next apply
# writes its pairs.
terraform import moai_router.front 'name=front,node=gateway,host=192.0.2.10,profile=nvidia'
