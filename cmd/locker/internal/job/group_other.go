//go:build unix && !linux

package job

import "syscall"

// attributes returns none: only Linux ends a command whose parent is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// descendants are not known: only Linux makes us the parent of orphans. Processes that leave the group cannot be reached.
type descendants struct{ leader int }

func adopt() *descendants { return &descendants{} }

func (*descendants) signal([]int, syscall.Signal) error { return nil }

// remain returns false: the rest of the group is killed when the command has ended.
func (*descendants) remain(bool) bool { return false }

func (*descendants) list() []int { return nil }

// A command that has ended is reaped at once. Then the rest of its group is killed: the group keeps its number while a
// member runs. If none does, another group may have got the number, in theory.
const numberIsKept = false

// awaitEnd waits for the command.
func (g *group) awaitEnd() { _ = g.Reap() }

// stopped returns false: if a command has the terminal and Ctrl-Z stops it, its lock is renewed.
func stopped(int) bool { return false }
