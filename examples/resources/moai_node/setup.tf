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
