// Package diagnose turns errors of the packages below into diagnostics. Every resource uses it, so that the same failure
// reads the same everywhere:
//
//	summary                     what failed, in a few words
//	sentence                    what the operator can do
//	raw error
//	Label: value …              node, host, step, code
//
// and points at the attribute to change.
package diagnose
