package redlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-locker/locker/driver"
)

// ForceRelease implements [driver.ForceReleaser]. It asks all nodes at once, and has ended the hold when a majority does not have it, or no longer: then
// the holder cannot extend it, and its Unlock returns [driver.ErrLost]. The hold is that of the Token; a node that the holder has come to have under
// a larger one keeps it until the holder finds out, or it expires.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	if err := d.begin(); err != nil {
		return err
	}
	defer d.work.Done()
	coming := query(ctx, d, d.nodes, func(ctx context.Context, n *node) (bool, error) {
		return n.forceRelease(ctx, name, shown.Token)
	})
	f := forced{votes: make([]error, len(d.nodes))}
	for i := range f.votes {
		f.votes[i] = errWaiting
	}
	for range d.nodes { // all of them: what is free at more nodes is taken sooner
		select {
		case a := <-coming:
			f.heard(a)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f.outcome(d)
}

// forceRelease ends the hold under that token at one node. It returns false without an error if nobody holds the lock there.
func (n *node) forceRelease(ctx context.Context, name string, token uint64) (ended bool, err error) {
	forcer, ok := n.Node.(driver.ForceReleaser)
	if !ok {
		return false, fmt.Errorf("%w: a %T does not end the hold of another process", driver.ErrUnsupported, n.Node)
	}
	state, err := n.inspect(ctx, name)
	switch {
	case err != nil:
		return false, err
	case !state.Held:
		return false, nil
	case state.Token != token:
		return false, heldUnder(state.Token)
	}
	err = forcer.ForceRelease(ctx, name, state) // whose ID is the node's own
	if errors.Is(err, driver.ErrNotHeld) {
		return false, nil
	}
	return err == nil, err
}

// forced counts what the nodes say to a ForceRelease.
type forced struct {
	votes              []error
	ended, free, other int // other: held under another token, or by another
}

func (f *forced) heard(a answer[bool]) {
	f.votes[a.i] = a.err
	switch {
	case a.err == nil && a.value:
		f.ended++
	case a.err == nil:
		f.free++
		f.votes[a.i] = driver.ErrNotHeld
	case errors.Is(a.err, driver.ErrHeld):
		f.other++
	}
}

// outcome returns what follows when all nodes have answered, or not in time.
func (f *forced) outcome(d *Driver) error {
	quorum := majority(len(d.nodes))
	switch {
	case f.other < quorum && f.ended+f.free+f.other >= quorum && f.ended > 0:
		return nil
	case f.free >= quorum:
		return driver.ErrNotHeld
	default:
		err := d.disagreement(func(i int) error { return f.votes[i] })
		err.held = f.other >= quorum
		return err
	}
}
