# Two prefill engines on one H100 host and two decode engines on one MI300X host, as two
# pools of one pair: every prefill engine may send to every decode engine. Engines of one host
# have accelerators of their own, and those of the two hosts are divided differently.

terraform {
  required_version = ">= 1.11"
  required_providers {
    moai = {
      source = "moai-dev/moai"
    }
  }
}

provider "moai" {
  fleet = "pools"
  ssh   = { known_hosts = var.known_hosts }
  ssh_profiles = {
    nvidia = { user = "ubuntu", private_key = var.nvidia_key }
    amd    = { user = "ops", private_key = var.amd_key }
  }
}

resource "moai_node" "h100" {
  name   = "h100-0"
  ssh    = { host = var.h100.host, profile = "nvidia" }
  fabric = { endpoints = [{ address = var.h100.fabric }] }
  expect = { vendor = "nvidia", gpu = "H100", gpu_count = 8 }
}

resource "moai_node" "mi300x" {
  name   = "mi300x-0"
  ssh    = { host = var.mi300x.host, profile = "amd" }
  fabric = { endpoints = [{ address = var.mi300x.fabric }] }
  expect = { vendor = "amd", gpu = "MI300X", gpu_count = 8 }
}

resource "moai_node" "gateway" {
  name   = "gateway"
  ssh    = { host = var.gateway, profile = "nvidia" }
  expect = { vendor = "none" }
}

resource "moai_kv_link" "main" {
  nodes = [moai_node.h100, moai_node.mi300x]
}

# Four ranks each: the heads of a layer are divided over four accelerators.
resource "moai_engine" "prefill" {
  for_each = {
    prefill-0 = [0, 1, 2, 3]
    prefill-1 = [4, 5, 6, 7]
  }

  name     = each.key
  node     = moai_node.h100
  kind     = "reference"
  role     = "prefill"
  model    = { id = var.model }
  preset   = "h100"
  parallel = { tensor = 4 }
  gpus     = each.value
  staging  = { memory = "1GiB" }
}

# Two replicas each, of two ranks each.
resource "moai_engine" "decode" {
  for_each = {
    decode-0 = [0, 1, 2, 3]
    decode-1 = [4, 5, 6, 7]
  }

  name     = each.key
  node     = moai_node.mi300x
  kind     = "reference"
  role     = "decode"
  model    = { id = var.model }
  preset   = "mi300x"
  parallel = { tensor = 2, data = 2 }
  gpus     = each.value
  staging  = { memory = "1GiB" }
}

resource "moai_pd_pair" "main" {
  name    = "main"
  prefill = values(moai_engine.prefill)
  decode  = values(moai_engine.decode)
  links   = [moai_kv_link.main]
}

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

output "conversions" {
  description = "How KV is converted between each two engines, as the plan has it."
  value       = { for c in moai_pd_pair.main.conversions : "${c.prefill} to ${c.decode}" => "${c.what} (${c.class})" }
}
