package redlock

import (
	"context"
	"errors"

	"github.com/go-locker/locker/driver"
)

// ForceRelease implements driver.Operator. It asks all nodes at once. The hold has ended
// when a majority of the nodes does not have it: then the holder cannot extend it, and its Unlock
// returns [driver.ErrLost]. Only the hold with the Token of shown ends. A node that granted the
// lock only at a later renewal may have a larger token for this hold. There the hold stays until
// the holder learns of the loss, or the hold expires.
func (d *backend) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	// It waits for all answers: the lock is taken sooner if more nodes have released it.
	answers, err := poll(ctx, d, 0, d.nodes, func(ctx context.Context, n *node) (struct{}, error) {
		return struct{}{}, n.forceRelease(ctx, name, shown.Token)
	}, nil)
	if err != nil {
		return err
	}
	quorum := majority(len(d.nodes))
	var ended, free, other int // other: held under another token, or by another owner
	for _, a := range answers {
		switch {
		case a.err == nil:
			ended++
		case errors.Is(a.err, driver.ErrNotHeld):
			free++
		case errors.Is(a.err, driver.ErrHeld):
			other++
		}
	}
	switch {
	case other < quorum && ended+free+other >= quorum && ended > 0:
		return nil
	case free >= quorum:
		return driver.ErrNotHeld
	default:
		err := d.disagreement(func(i int) error { return answers[i].err })
		err.held = other >= quorum
		return err
	}
}

// forceRelease ends the hold under that token at one node.
func (n *node) forceRelease(ctx context.Context, name string, token uint64) error {
	o, err := n.operator("does not end the hold of another process")
	if err != nil {
		return err
	}
	switch state, err := n.inspect(ctx, name); {
	case err != nil:
		return err
	case !state.Held:
		return driver.ErrNotHeld
	case state.Token != token:
		return heldUnder(state.Token)
	default:
		return o.ForceRelease(ctx, name, state) // state has the node's own ID of the holder
	}
}
