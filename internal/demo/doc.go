// Package demo runs the main job in a local lab, on real parts: it builds the
// provider, applies examples/quickstart to three hosts, sends a completion
// through the endpoint that comes out, proves that the KV cache crossed, and
// shows that drift is seen and healed. Nothing that it drives knows that it is
// in a lab: Terraform or OpenTofu is the machine's own, the hosts have systemd
// and OpenSSH, and what the demo asks of them goes over SSH, as an operator's
// questions would.
//
// The deciding parts are pure and lie below: prompt makes the text, proof judges
// the evidence.
package demo
