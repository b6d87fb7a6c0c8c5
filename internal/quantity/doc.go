// Package quantity holds attribute types for sizes, rates and durations that
// are written as strings with units. Two spellings of one amount are
// semantically equal, so "1024MiB" in a configuration and "1GiB" in a state
// make no diff.
//
// The parsers are pure; value.go and type.go connect them to the framework.
package quantity
