// Package facts reads what a host's own tools say: accelerators, driver, memory, network, operating system. It is pure.
//
// What decides: PCI vendor, device and class decide which accelerators a host has; vendor tools add memory, driver and
// identifiers. A tool that is missing, hangs or fails is a finding, never a guess.
package facts
