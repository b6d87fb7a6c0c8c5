// Package router is the moai_router resource: the gateway on a node, through which
// clients reach pairs.
//
// What belongs on the host and in the daemons of the pairs' nodes is decided by
// desired.go, which is pure. The doing is in install.go and trust.go; resource.go,
// plan.go and read.go are what the framework calls.
package router
