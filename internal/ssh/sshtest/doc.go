// Package sshtest is an SSH server in this process, for tests: [Server] with faults on demand, and [Machine], a machine
// in memory that answers the scripts of package host.
//
// Both are strict: a command that nobody has an answer for fails the test.
package sshtest
