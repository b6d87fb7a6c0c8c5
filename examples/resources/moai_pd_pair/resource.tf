resource "moai_pd_pair" "main" {
  prefill = [moai_engine.prefill]
  decode  = [moai_engine.decode]
  links   = [moai_kv_link.main]
}

output "conversions" {
  description = "How KV is converted between each two engines, as the plan has it."
  value       = moai_pd_pair.main.conversions
}
