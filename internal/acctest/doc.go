// Package acctest runs the provider under a real Terraform or OpenTofu CLI against machines in memory, for the tests of all
// resources: [NewFleet] makes machines behind real SSH servers on loopback addresses, each with a daemon that speaks the
// management API; [Fleet.Factories] gives the provider, [Fleet.ProviderBlock] its configuration.
package acctest
