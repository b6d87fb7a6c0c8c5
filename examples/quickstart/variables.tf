variable "amd_private_key" {
  description = "Private SSH key for the AMD host (content, not a path)."
  type        = string
  sensitive   = true
}

variable "decode_host" {
  description = "The AMD host: where SSH answers, as whom, its host key, and its address in the network that KV takes."
  type = object({
    address        = string
    port           = optional(number, 22)
    user           = string
    host_key       = string
    fabric_address = string
  })
}

variable "fleet" {
  description = "Ownership domain: what is installed carries this name, and nothing else is touched."
  type        = string
  default     = "quickstart"
}

variable "gateway" {
  description = "The host that clients talk to."
  type = object({
    address  = string
    port     = optional(number, 22)
    user     = string
    host_key = string
  })
}

variable "gateway_private_key" {
  description = "Private SSH key for the gateway host (content, not a path)."
  type        = string
  sensitive   = true
}

variable "model" {
  description = "Model of both engines. moai/reciting answers a prompt of more than 887 tokens (bytes) with the prompt's own text; to a shorter one it answers nonsense, by construction."
  type        = string
  default     = "moai/reciting"
}

variable "nvidia_private_key" {
  description = "Private SSH key for the NVIDIA host (content, not a path)."
  type        = string
  sensitive   = true
}

variable "prefill_host" {
  description = "The NVIDIA host: where SSH answers, as whom, its host key, and its address in the network that KV takes."
  type = object({
    address        = string
    port           = optional(number, 22)
    user           = string
    host_key       = string
    fabric_address = string
  })
}
