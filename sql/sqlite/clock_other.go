//go:build !linux

package sqlite

import "time"

// now returns microseconds by the wall clock.
func now() int64 { return time.Now().UnixMicro() }

const sane = "the wall clock is sane, "

// shared returns what kind of file system path is on, if other machines may share it. It cannot
// tell.
func shared(string) string { return "" }
