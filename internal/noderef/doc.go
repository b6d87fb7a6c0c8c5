// Package noderef is the schema and the model of a node passed whole to another resource, as in
//
//	node = moai_node.h100
//
// A passed node holds identity (name, machine_id), coordinates (ssh, fabric), the daemon's public key and the vendor.
// It holds nothing that changes by itself, so that a driver update on a host is not an update of its engines.
//
// Rules for the resources that take one:
//
//   - Another identity is another object: [Attribute] plans replacement.
//   - Coordinates are followed. Read calls [Follow] and saves what it returns; Update saves the plan's value. Neither is
//     a reason to restart anything.
//   - Any part may be unknown at plan: [Decode] says so instead of failing.
package noderef
