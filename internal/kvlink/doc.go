// Package kvlink is the moai_kv_link resource: two nodes that trust each other's keys and hold a connection for KV.
//
// What each end shall hold is decided in ends.go, purely; converge.go tells the daemons; resource.go, plan.go and read.go
// are what the framework calls.
package kvlink
