//go:build !linux

package sqlite

var exchange func(a, b string) error
