# Two H100 hosts that read prompts and two MI300X hosts that write answers, behind one
# endpoint. The engines are of the kind "reference", which needs no accelerator, so that the
# whole path can be proved on the real hosts and their network before real engines take it.

terraform {
  required_version = ">= 1.11"
  required_providers {
    moai = {
      source = "moai-dev/moai"
    }
  }
}

provider "moai" {
  fleet = "prod"
  ssh   = { known_hosts = var.known_hosts }
  ssh_profiles = {
    nvidia = { user = "ubuntu", private_key = var.nvidia_key }
    amd = {
      user        = "ops"
      private_key = var.amd_key
      bastions    = [{ host = var.amd_bastion, user = "ops" }]
      become      = { method = "sudo", password = var.amd_sudo_password }
    }
  }
}

resource "moai_node" "h100" {
  for_each = var.h100

  name   = each.key
  ssh    = { host = each.value.host, profile = "nvidia" }
  fabric = { endpoints = [for a in each.value.fabric : { address = a }] }
  expect = { vendor = "nvidia", gpu = "H100", gpu_count = 8 }
}

resource "moai_node" "mi300x" {
  for_each = var.mi300x

  name   = each.key
  ssh    = { host = each.value.host, profile = "amd" }
  fabric = { endpoints = [for a in each.value.fabric : { address = a }] }
  expect = { vendor = "amd", gpu = "MI300X", gpu_count = 8 }
}

resource "moai_node" "gateway" {
  name   = "gateway"
  ssh    = { host = var.gateway, profile = "nvidia" }
  expect = { vendor = "none" }
}

# Every prefill host is linked with every decode host.
resource "moai_kv_link" "mesh" {
  for_each = { for p in setproduct(keys(var.h100), keys(var.mi300x)) : "${p[0]}--${p[1]}" => p }

  name  = each.key
  nodes = [moai_node.h100[each.value[0]], moai_node.mi300x[each.value[1]]]
}

resource "moai_engine" "prefill" {
  for_each = moai_node.h100

  name    = "prefill-${each.key}"
  node    = each.value
  kind    = "reference"
  role    = "prefill"
  model   = { id = var.model }
  preset  = "h100"
  runtime = { kind = "existing", path = "/usr/local/bin/moaid-lab" }
  staging = { memory = "4GiB" }
}

resource "moai_engine" "decode" {
  for_each = moai_node.mi300x

  name    = "decode-${each.key}"
  node    = each.value
  kind    = "reference"
  role    = "decode"
  model   = { id = var.model }
  preset  = "mi300x"
  runtime = { kind = "existing", path = "/usr/local/bin/moaid-lab" }
  staging = { memory = "4GiB" }
  ingest  = { max_in_flight = "1GiB" }
}

resource "moai_pd_pair" "main" {
  name    = "main"
  prefill = values(moai_engine.prefill)
  decode  = values(moai_engine.decode)
  links   = values(moai_kv_link.mesh)
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
