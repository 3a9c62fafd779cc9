// Package contend has many want the lock of one name.
package contend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/wire"
)

type (
	// Library is one way to lock.
	Library struct {
		Name, Module, Settings string

		TTL time.Duration // of holds, or of the session that they share

		// Open makes a client as a process of its own would have it, with its own connections.
		Open func(addrs []string, sent *wire.Tally, ttl time.Duration) (*Client, error)
	}

	// Client is one process's.
	Client struct {
		Waiter func(name string) LockFunc // what one waiter locks with, again and again
		Hold   HoldFunc                   // nil if holds do not tell how long they last
		Close  func()
	}

	// LockFunc waits until it holds the lock or ctx is done. ctx stays alive through the hold, and has
	// a deadline further off than the TTL: some libraries end the hold with ctx, or invent a deadline.
	LockFunc func(ctx context.Context) (UnlockFunc, error)

	// HoldFunc is LockFunc, and left says at any time how long the hold lasts unless it is renewed.
	HoldFunc func(ctx context.Context, name string) (unlock UnlockFunc, left func() time.Duration, err error)

	// UnlockFunc gives the lock back.
	UnlockFunc func(ctx context.Context) error

	// Libraries are those that are compared.
	Libraries []Library
)

// Connect opens a client.
func (l Library) Connect(addrs []string, sent *wire.Tally) (*Client, error) {
	return l.Open(addrs, sent, l.TTL)
}

// LockName is one that all servers allow: "what-library-detail…".
func (l Library) LockName(what string, details ...any) string {
	parts := []string{what, l.Name}
	for _, d := range details {
		parts = append(parts, fmt.Sprint(d))
	}
	return strings.NewReplacer(" ", "-", ",", "-").Replace(strings.Join(parts, "-"))
}

// OpenClients opens n clients, or none.
func (l Library) OpenClients(n int, addrs []string, sent *wire.Tally) ([]*Client, func(), error) {
	clients := make([]*Client, 0, n)
	closeAll := func() {
		for _, c := range clients {
			c.Close()
		}
	}
	for range n {
		c, err := l.Connect(addrs, sent)
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("%s: %w", l.Name, err)
		}
		clients = append(clients, c)
	}
	return clients, closeAll, nil
}

// Names has a comma between one and the next.
func (all Libraries) Names() string {
	names := make([]string, len(all))
	for i, l := range all {
		names[i] = l.Name
	}
	return strings.Join(names, ",")
}

// Named returns those with the names, which have commas between them, in their order.
func (all Libraries) Named(names string) (Libraries, error) {
	var some Libraries
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(all, func(l Library) bool { return l.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no library is called %q", name)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// Turn is their order in a round: each comes first in its turn.
func (all Libraries) Turn(round int) Libraries {
	n := len(all)
	order := make(Libraries, n)
	for i := range order {
		order[i] = all[(i+round)%n]
	}
	return order
}

// Setting is that of a run which measures them.
func (all Libraries) Setting(server string) report.Setting {
	rows := make([]report.LibraryRow, len(all))
	for i, l := range all {
		rows[i] = report.LibraryRow{Name: l.Name, Module: l.Module, Settings: l.Settings}
	}
	return report.NewSetting(server, rows)
}

// Sleep reports whether d passed before ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
