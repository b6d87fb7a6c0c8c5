terraform {
  required_version = ">= 1.11"
  required_providers {
    moai = {
      source = "moai-dev/moai"
    }
  }
}

variable "nvidia_key" {
  description = "Private SSH key for the NVIDIA hosts."
  type        = string
  sensitive   = true
}

variable "amd_key" {
  description = "Private SSH key for the AMD hosts."
  type        = string
  sensitive   = true
}

provider "moai" {
  fleet = "prod"
  ssh_profiles = {
    nvidia = { user = "ubuntu", private_key = var.nvidia_key }
    amd    = { user = "ops", private_key = var.amd_key }
  }
}

resource "moai_node" "h100" {
  name = "h100-0"
  ssh  = { host = "192.0.2.11", profile = "nvidia", host_key = "SHA256:0000000000000000000000000000000000000000000" }
}

resource "moai_node" "mi300x" {
  name = "mi300x-0"
  ssh  = { host = "192.0.2.21", profile = "amd", host_key = "SHA256:0000000000000000000000000000000000000000000" }
}

resource "moai_kv_link" "main" {
  nodes = [moai_node.h100, moai_node.mi300x]
}

resource "moai_engine" "prefill" {
  name   = "prefill-0"
  node   = moai_node.h100
  kind   = "reference"
  role   = "prefill"
  model  = { id = "moai/reciting" }
  preset = "h100"
}

resource "moai_engine" "decode" {
  name   = "decode-0"
  node   = moai_node.mi300x
  kind   = "reference"
  role   = "decode"
  model  = { id = "moai/reciting" }
  preset = "mi300x"
}
