// Package quantity holds the attribute type for sizes that are written as
// strings with units. Two spellings of one amount are semantically equal, so
// "1024MiB" in a configuration and "1GiB" in a state make no diff.
//
// The parser is pure; value.go connects it to the framework.
package quantity
