package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/redislocks"
	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/stats"
	"github.com/go-locker/locker/bench/internal/wire"
)

// Names is what names leave at the server that were locked once, and released.
type Names struct {
	Library string       `json:"library"`
	Names   int          `json:"names"`
	Load    servers.Load `json:"load"` // of locking and releasing all of them
	// Bytes are those of the server's memory that came with the names: when the last was released, and after a while.
	Bytes      int64   `json:"bytes"`
	BytesAfter int64   `json:"bytesAfter"`
	After      float64 `json:"afterSeconds"`
}

func (o *options) measureNames(ctx context.Context, on *servers.Servers, progress io.Writer) ([]Names, error) {
	all := make([]Names, 0, len(o.Libraries))
	for _, l := range o.Libraries {
		if slices.Contains(redislocks.NoLocks, l.Name) {
			continue // what it leaves says nothing
		}
		n := Names{Library: l.Name, Names: o.names, After: o.namesAfter.Seconds()}
		if err := o.useOnce(ctx, on, l, &n); err != nil {
			return nil, fmt.Errorf("%d names of %s: %w", n.Names, l.Name, err)
		}
		fmt.Fprintf(progress, "%d names, %s: %d bytes, and %d %v later\n", n.Names, l.Name, n.Bytes, n.BytesAfter, o.namesAfter)
		all = append(all, n)
	}
	return all, nil
}

// useOnce locks and releases n.Names names, and looks at the server's memory.
func (o *options) useOnce(ctx context.Context, on *servers.Servers, l contend.Library, n *Names) error {
	for _, s := range on.Redis {
		if err := s.Client.FlushAll(ctx).Err(); err != nil { // what others have left
			return err
		}
	}
	sent := wire.NewTally()
	client, err := l.Connect(on.Addrs, sent)
	if err != nil {
		return err
	}
	defer client.Close()
	pair := func(name string) error {
		unlock, err := client.Waiter(name)(ctx)
		if err != nil {
			return err
		}
		return contend.Release(ctx, unlock)
	}
	// Connections, and scripts, are there before.
	if err := inParallel(takers, func(i int) error { return pair(fmt.Sprintf("first-%d", i)) }); err != nil {
		return err
	}
	memory, err := on.Memory(ctx)
	if err != nil {
		return err
	}
	if n.Load, err = on.During(ctx, sent, func() error {
		return inParallel(n.Names, func(i int) error { return pair(fmt.Sprintf("name-%d", i)) })
	}); err != nil {
		return err
	}
	if n.Bytes, err = on.Memory(ctx); err != nil {
		return err
	}
	if !contend.Sleep(ctx, o.namesAfter) {
		return context.Cause(ctx)
	}
	if n.BytesAfter, err = on.Memory(ctx); err != nil {
		return err
	}
	n.Bytes -= memory
	n.BytesAfter -= memory
	return nil
}

func (r *Results) printNames(b *strings.Builder) {
	fmt.Fprintf(b, `
## Names

Each name is locked once, and released, by %d goroutines that share a client. Bytes: how much the server's memory grew, for
each name, right after the last release, and %v later. Server µs, and commands sent, are for one name.

`, takers, time.Duration(r.Names[0].After*float64(time.Second)))
	t := report.NewTable("names", "library", "bytes at once", "bytes later", "sent", "server µs")
	for i := range r.Names {
		n := &r.Names[i]
		each := func(total float64, digits int) string { return stats.Figure(total/float64(n.Names), digits) }
		t.AppendRow(table.Row{
			n.Names, n.Library, each(float64(n.Bytes), 1), each(float64(n.BytesAfter), 1), each(float64(n.Load.Sent), 2), each(n.Load.Microseconds, 1),
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}
