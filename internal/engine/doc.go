// Package engine is the moai_engine resource: one inference engine on a node, run
// by systemd and registered at the node's KV daemon.
//
// What an engine may be, and what its KV cache looks like, is decided by package
// engines; which files, unit and registration belong on the host by desired.go;
// whether they are there by status.go. All of that is pure. The doing is in
// install.go; resource.go, plan.go and read.go are what the framework calls.
package engine
