resource "moai_kv_link" "main" {
  nodes      = [moai_node.h100, moai_node.mi300x]
  transport  = "auto"
  encryption = "aead"
}
