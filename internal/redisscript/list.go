package redisscript

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
)

// Scan makes one step of SCAN at one server, from cursor on. It returns the keys that match, and
// the next cursor, which is 0 after the last step.
type Scan func(ctx context.Context, cursor uint64, match string) (keys []string, next uint64, err error)

// ScanCount is the COUNT of a step: how many keys the server goes through, more or less, in a
// fraction of a millisecond.
const ScanCount = 250

// List implements driver.Operator: a page is one step of SCAN at one server, and one round trip for
// the locks among the keys.
func (d *Driver) List(prefix string) driver.Pager {
	w := &walk{driver: d, match: script.Matching(prefix)}
	return w.page
}

// walk goes through the keys of each server.
type walk struct {
	driver *Driver
	match  string
	scans  []Scan // of the servers that are left; nil: not asked for yet
	cursor uint64
}

func (w *walk) page(ctx context.Context) (driver.Page, error) {
	s := w.driver.sender
	if w.scans == nil {
		var scans []Scan
		err := s.Aside(ctx, func(ctx context.Context) (err error) { scans, err = w.driver.runner.Scans(ctx); return err })
		if err != nil || len(scans) == 0 {
			return driver.Page{Last: true}, err
		}
		w.scans = scans
	}
	var keys []string
	var next uint64
	scan, cursor := w.scans[0], w.cursor
	err := s.Aside(ctx, func(ctx context.Context) (err error) { keys, next, err = scan(ctx, cursor, w.match); return err })
	if err != nil {
		return driver.Page{}, err
	}
	held, err := w.driver.held(ctx, keys)
	if err != nil {
		return driver.Page{}, err
	}
	if w.cursor = next; w.cursor == 0 {
		w.scans = w.scans[1:]
	}
	return driver.Page{Names: held, Last: len(w.scans) == 0}, nil
}

// held returns the names of those of the keys that are locks, and held.
func (d *Driver) held(ctx context.Context, keys []string) (held []string, err error) {
	var names []string
	var calls []script.Call
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) { // a step may have a key twice
		if name, ok := script.NameOf(key); ok {
			own := script.KeysOf(name)
			names, calls = append(names, name), append(calls, script.Call{Script: script.Inspect, Keys: own[:], Args: []any{0}})
		}
	}
	if len(calls) == 0 {
		return nil, nil
	}
	replies := make([]script.Reply, len(calls))
	if failed, answered := d.sender.Send(ctx, send.Longest, d.sender.RequestOf(calls, replies)); !answered {
		return nil, failed.Err
	}
	for i, r := range replies {
		switch state, ok := script.ParseState(r.Value); {
		case r.Err != nil && strings.Contains(r.Err.Error(), "WRONGTYPE"): // no lock of ours
		case r.Err != nil:
			return nil, r.Err
		case !ok:
			return nil, fmt.Errorf("unexpected reply to the inspect script: %v", r.Value)
		case state.Held:
			held = append(held, names[i])
		}
	}
	return held, nil
}
