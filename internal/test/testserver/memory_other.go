//go:build !linux

package testserver

import "testing"

// MemoryDir returns t.TempDir.
func MemoryDir(t testing.TB) string {
	t.Helper()
	return t.TempDir()
}
