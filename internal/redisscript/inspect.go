package redisscript

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
)

// everybody is how far into the queue to look: to its end.
const everybody = -1

// Inspect implements driver.Operator, in one round trip. An owner that was handed the lock and has
// yet to take it is still the first of the waiters.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.State, error) {
	keys := script.KeysOf(name)
	reply, err := d.sender.Call(ctx, script.Inspect, keys[:], everybody)
	if err != nil {
		return driver.State{}, err
	}
	state, ok := script.ParseState(reply)
	if !ok {
		return driver.State{}, fmt.Errorf("unexpected reply to the inspect script: %v", reply)
	}
	return state, nil
}

// ForceRelease implements driver.Operator, in one round trip.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	var shares []string
	for _, share := range shown.Shares {
		shares = append(shares, share.ID)
	}
	keys, owners := script.KeysOf(name), cmp.Or(shown.Holder.ID, strings.Join(shares, "\n"))
	reply, err := d.sender.Call(ctx, script.Force, keys[:], owners, shown.Token)
	if err != nil {
		return err
	}
	switch reply {
	case any(int64(1)):
		return nil
	case any(int64(0)):
		return driver.ErrNotHeld
	case any(int64(-1)):
		return driver.ErrHeld
	default:
		return fmt.Errorf("unexpected reply to the force script: %v", reply)
	}
}

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
	var keys []string
	scans, next := w.scans, w.cursor
	if err := w.driver.sender.Aside(ctx, func(ctx context.Context) (err error) {
		if scans == nil {
			if scans, err = w.driver.runner.Scans(ctx); err != nil || len(scans) == 0 {
				return err
			}
		}
		keys, next, err = scans[0](ctx, next, w.match)
		return err
	}); err != nil {
		return driver.Page{}, err
	}
	held, err := w.driver.held(ctx, keys)
	if err != nil {
		return driver.Page{}, err
	}
	if next == 0 && len(scans) > 0 {
		scans = scans[1:]
	}
	w.scans, w.cursor = scans, next
	return driver.Page{Names: held, Last: len(scans) == 0}, nil
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
