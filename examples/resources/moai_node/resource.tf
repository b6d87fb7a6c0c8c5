resource "moai_node" "h100" {
  name   = "h100-0"
  ssh    = { host = "192.0.2.11", profile = "nvidia", host_key = "SHA256:0000000000000000000000000000000000000000000" }
  fabric = { endpoints = [{ address = "198.51.100.11" }] }
  expect = { vendor = "nvidia", gpu = "H100", gpu_count = 8 }
}
