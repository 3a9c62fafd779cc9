//go:build unix && !linux

package main

import "syscall"

// attributes are none: only Linux ends a command whose parent is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// descendants are not known: only Linux makes us the parent of orphans, and what leaves the group is out of reach.
type descendants struct{ leader int }

func adopt() *descendants { return &descendants{} }

func (*descendants) signal([]int, syscall.Signal) error { return nil }

// remain reports that nothing is known to: what is left of the group is killed when the command has ended.
func (*descendants) remain(bool) bool { return false }

func (*descendants) list() []int { return nil }

// A command that has ended is reaped at once. What is left of its group is killed then: the group has its number as long as a
// member runs. If none does, the number may be another group's, in theory.
const numberIsKept = false

// awaitEnd waits for the command.
func (g *group) awaitEnd() { _ = g.reap() }

// stopped is not asked of the system: the lock of a command that has the terminal, and that Ctrl-Z has stopped, is renewed.
func stopped(int) bool { return false }
