variable "amd_key" {
  description = "Private SSH key for the MI300X host (content, not a path)."
  type        = string
  sensitive   = true
}

variable "gateway" {
  description = "Host that clients talk to."
  type        = string
}

variable "h100" {
  description = "The H100 host: where SSH answers, and its address in the network that KV takes."
  type        = object({ host = string, fabric = string })
}

variable "known_hosts" {
  description = "Host keys of all hosts, in known_hosts format."
  type        = string
}

variable "mi300x" {
  description = "The MI300X host: where SSH answers, and its address in the network that KV takes."
  type        = object({ host = string, fabric = string })
}

variable "model" {
  description = "Model of all engines: one whose 8 KV heads can be divided over all ranks."
  type        = string
  default     = "moai/reciting-wide"
}

variable "nvidia_key" {
  description = "Private SSH key for the H100 host and the gateway (content, not a path)."
  type        = string
  sensitive   = true
}
