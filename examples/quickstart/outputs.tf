output "conversion" {
  description = "How KV is converted between the hosts, as the plan has it."
  value       = one(moai_pd_pair.main.conversions[*].what)
}

output "endpoint" {
  description = "Base URL of the OpenAI-compatible API."
  value       = moai_router.front.endpoint
}

output "kv_bytes_per_token" {
  description = "Bytes of KV that one more token of a long prompt moves from the NVIDIA host to the AMD host."
  value       = moai_engine.decode.kv_bytes_per_token
}

output "verified" {
  description = "Whether a prompt that was read on one host was answered right on the other."
  value       = moai_pd_pair.main.verified
}
