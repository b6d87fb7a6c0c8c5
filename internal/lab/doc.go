// Package lab makes local Linux hosts to try the provider on.
package lab
