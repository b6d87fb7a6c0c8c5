variable "amd_bastion" {
  description = "Jump host before the MI300X hosts."
  type        = string
}

variable "amd_key" {
  description = "Private SSH key for the MI300X hosts and their jump host (content, not a path)."
  type        = string
  sensitive   = true
}

variable "amd_sudo_password" {
  description = "Password for sudo on the MI300X hosts."
  type        = string
  sensitive   = true
}

variable "gateway" {
  description = "Host that clients talk to."
  type        = string
}

variable "h100" {
  description = "H100 hosts by name: where SSH answers, and one fabric address a rail."
  type        = map(object({ host = string, fabric = list(string) }))
}

variable "known_hosts" {
  description = "Host keys of all hosts, in known_hosts format."
  type        = string
}

variable "mi300x" {
  description = "MI300X hosts by name: where SSH answers, and one fabric address a rail."
  type        = map(object({ host = string, fabric = list(string) }))
}

variable "model" {
  description = "Model of all engines."
  type        = string
  default     = "moai/reciting"
}

variable "nvidia_key" {
  description = "Private SSH key for the H100 hosts and the gateway (content, not a path)."
  type        = string
  sensitive   = true
}
