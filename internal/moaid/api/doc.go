// Package api holds the types of the management API, version 1, which the
// provider and moaid share. The API itself is described in
// docs/protocols/management-api.md.
package api
