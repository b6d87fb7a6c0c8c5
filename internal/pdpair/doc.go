// Package pdpair is the moai_pd_pair resource: pools of prefill and decode engines
// that may exchange KV over links.
//
// Whether they can is decided at the first plan, by pool.go, which is pure.
// Package canary judges a request that went through both. The doing is in
// converge.go and witness.go; resource.go, plan.go and read.go are what the
// framework calls.
package pdpair
