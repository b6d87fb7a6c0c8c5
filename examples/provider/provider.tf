terraform {
  required_version = ">= 1.11"
  required_providers {
    moai = {
      source = "moai-dev/moai"
    }
  }
}

variable "known_hosts" {
  description = "Host keys of the fleet, in known_hosts format."
  type        = string
}

variable "nvidia_key" {
  description = "Private SSH key for the NVIDIA hosts."
  type        = string
  sensitive   = true
}

variable "amd_key" {
  description = "Private SSH key for the AMD hosts and for the jump host before them."
  type        = string
  sensitive   = true
}

variable "sudo_password" {
  description = "Password for sudo on the AMD hosts."
  type        = string
  sensitive   = true
}

provider "moai" {
  fleet = "prod"
  ssh   = { known_hosts = var.known_hosts }
  ssh_profiles = {
    nvidia = { user = "ubuntu", private_key = var.nvidia_key }
    amd = {
      user        = "ops"
      private_key = var.amd_key
      bastions    = [{ host = "jump.example", user = "ops" }]
      become      = { method = "sudo", password = var.sudo_password }
    }
  }
}
