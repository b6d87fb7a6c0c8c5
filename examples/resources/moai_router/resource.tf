resource "moai_router" "front" {
  name   = "front"
  node   = moai_node.gateway
  pairs  = [moai_pd_pair.main]
  listen = "0.0.0.0:8000"
}

output "endpoint" {
  description = "Base URL of the OpenAI-compatible API."
  value       = moai_router.front.endpoint
}
