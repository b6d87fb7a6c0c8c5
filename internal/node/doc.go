// Package node is the moai_node resource: one machine, with the KV daemon on it.
//
// The deciding is pure and tested without a server: expect.go (is the machine what the configuration expects),
// desired.go (which files and which unit belong on it), status.go (is what is there what belongs there), importid.go,
// model.go. The doing is in install.go; resource.go, plan.go and read.go are what the framework calls.
package node
