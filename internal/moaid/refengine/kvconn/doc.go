// Package kvconn is the reference engine's KV connector: what moai_kv is inside
// vLLM. Its scheduler part and its worker part have sessions of their own with
// the KV daemon and share no state; orders travel from one to the other in a
// step's metadata, reports come back through the engine.
package kvconn
