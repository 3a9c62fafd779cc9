package clock

import (
	"syscall"
	"unsafe"
)

const (
	clockMonotonic = 1 // stands still during suspension
	clockBoottime  = 7 // goes on
)

// asleep is what the machine had slept before this process looked for the first time: the largest
// of a few readings, for a pause in the middle of one makes it too small.
var asleep = max(boottimeAhead(), boottimeAhead(), boottimeAhead())

// slept returns the growth of CLOCK_BOOTTIME over CLOCK_MONOTONIC since the process started, in
// nanoseconds, or a little less.
func slept() int64 { return boottimeAhead() - asleep }

// boottimeAhead reads CLOCK_BOOTTIME first: time between the two readings makes the answer
// smaller, never larger, so that a process which is stopped here does not invent a suspension.
func boottimeAhead() int64 {
	boot := gettime(clockBoottime)
	return boot - gettime(clockMonotonic)
}

func gettime(id uintptr) int64 {
	var ts syscall.Timespec
	// The call fails for an unknown clock alone; both have been there since Linux 2.6.39.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}
