resource "moai_engine" "prefill" {
  name     = "prefill-0"
  node     = moai_node.h100
  kind     = "reference"
  role     = "prefill"
  model    = { id = "moai/reciting" }
  preset   = "h100"
  parallel = { tensor = 2 }
  gpus     = [0, 1]
  staging  = { memory = "256MiB" }
}

resource "moai_engine" "decode" {
  name                = "decode-0"
  node                = moai_node.mi300x
  kind                = "reference"
  role                = "decode"
  model               = { id = "moai/reciting" }
  preset              = "mi300x"
  kv_cache            = { dtype = "fp8", block_size = 128 }
  staging             = { memory = "256MiB" }
  ingest              = { max_in_flight = "64MiB" }
  on_transfer_failure = "recompute"
}
