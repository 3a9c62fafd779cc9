//go:build !linux

package sqlite_test

var exchange func(a, b string) error
