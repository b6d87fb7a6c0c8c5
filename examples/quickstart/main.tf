# One endpoint that reads prompts on an NVIDIA host and writes answers on an AMD host.

terraform {
  required_version = ">= 1.11"
  required_providers {
    moai = {
      source = "moai-dev/moai"
    }
  }
}

provider "moai" {
  fleet = var.fleet
  ssh_profiles = {
    gateway = { user = var.gateway.user, private_key = var.gateway_private_key }
    nvidia  = { user = var.prefill_host.user, private_key = var.nvidia_private_key }
    amd     = { user = var.decode_host.user, private_key = var.amd_private_key }
  }
}

resource "moai_node" "gateway" {
  name = "gateway"
  ssh = {
    host     = var.gateway.address
    port     = var.gateway.port
    profile  = "gateway"
    host_key = var.gateway.host_key
  }
  expect = { vendor = "none" }
}

resource "moai_node" "h100" {
  name = "h100-0"
  ssh = {
    host     = var.prefill_host.address
    port     = var.prefill_host.port
    profile  = "nvidia"
    host_key = var.prefill_host.host_key
  }
  fabric = { endpoints = [{ address = var.prefill_host.fabric_address }] }
  expect = { vendor = "nvidia", gpu = "H100", gpu_count = 8 }
}

resource "moai_node" "mi300x" {
  name = "mi300x-0"
  ssh = {
    host     = var.decode_host.address
    port     = var.decode_host.port
    profile  = "amd"
    host_key = var.decode_host.host_key
  }
  fabric = { endpoints = [{ address = var.decode_host.fabric_address }] }
  expect = { vendor = "amd", gpu = "MI300X", gpu_count = 8 }
}

resource "moai_kv_link" "main" {
  nodes = [moai_node.h100, moai_node.mi300x]
}

# The two vendors keep the same KV differently: other fp8 encodings, block sizes and
# layouts. It is converted on its way; the plan shows how in moai_pd_pair.main.conversions.
resource "moai_engine" "prefill" {
  name    = "prefill-0"
  node    = moai_node.h100
  kind    = "reference"
  role    = "prefill"
  model   = { id = var.model }
  preset  = "h100"
  runtime = { kind = "existing" }
}

resource "moai_engine" "decode" {
  name    = "decode-0"
  node    = moai_node.mi300x
  kind    = "reference"
  role    = "decode"
  model   = { id = var.model }
  preset  = "mi300x"
  runtime = { kind = "existing" }
}

resource "moai_pd_pair" "main" {
  name    = "main"
  prefill = [moai_engine.prefill]
  decode  = [moai_engine.decode]
  links   = [moai_kv_link.main]
}

resource "moai_router" "front" {
  name   = "front"
  node   = moai_node.gateway
  pairs  = [moai_pd_pair.main]
  listen = "0.0.0.0:8000"
}
