// Package fleet is what all resources of one provider configuration share: the settings of the provider block, one
// pooled SSH connection and one management client a node, and the registry that says where each node is now.
//
// A node has an identity (its machine-id) and coordinates (address, port, host key, profile). Every resource remembers
// coordinates in its own state, and those grow old. The moai_node resource therefore registers what it knows, and
// [Fleet.Node] answers with the registered coordinates when there are any.
//
// Nothing here dials before a node is used, and nothing here imports Terraform.
package fleet
