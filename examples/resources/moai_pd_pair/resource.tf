resource "moai_pd_pair" "main" {
  prefill = [moai_engine.prefill]
  decode  = [moai_engine.decode]
  links   = [moai_kv_link.main]
}
