//go:build !linux

package testserver

const knowsOwners = false

func inodeOf(int, int) string { return "" }

func hasSocket(int, string) bool { return false }
