package redlock

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/test/claims"
)

// instantNode grants everything at once.
type instantNode struct {
	stageClient
	addr string
}

func (n *instantNode) Address() string { return n.addr }

func (n *instantNode) Candidate(driver.Request, uint64, func(bool)) quorum.Candidate {
	return &instantLease{}
}

type instantLease struct{ token atomic.Uint64 }

func (l *instantLease) Propose(_ context.Context, token uint64) (bool, error) {
	l.token.Store(token)
	return false, nil
}

func (l *instantLease) Known() bool { return true }

func (l *instantLease) Token() uint64                               { return l.token.Load() }
func (l *instantLease) Validity() time.Duration                     { return time.Hour }
func (l *instantLease) Extend(context.Context, time.Duration) error { return nil }
func (l *instantLease) Raise(context.Context, uint64) error         { return nil }
func (l *instantLease) Release(context.Context) error               { return nil }

// BenchmarkPair is what a Lock and an Unlock cost in this package.
func BenchmarkPair(b *testing.B) {
	for _, n := range []int{3, 5} {
		b.Run(fmt.Sprint(n, " nodes"), func(b *testing.B) {
			var nodes []driver.Driver
			for i := range n {
				nodes = append(nodes, &instantNode{addr: fmt.Sprint(i)})
			}
			d, err := NewDriver(nodes)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			b.ReportAllocs()
			for b.Loop() {
				l, err := claims.Wait(b.Context(), d, driver.Request{Name: "x", TTL: 30 * time.Second}, func(error) {})
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
