// Package claims asks a Driver for a lock in a test, as the core does.
package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
)

// Driver is what adapters have. Their NewDriver returns a driver.Driver.
type Driver interface {
	driver.Driver
	driver.Operator
	driver.BatchExtender
	driver.TTLChecker
}

// claimer has the method of a driver.Driver that is needed here.
type claimer interface {
	Claim(req driver.Request) driver.Claim
}

// names counts those of Fresh.
var names atomic.Int64

// Fresh returns the qualified name of a lock that no other test of this process has: tests share
// servers.
func Fresh() string { return fmt.Sprint("fresh:x", names.Add(1)) }

// Take asks d once. It returns the claim, beside an error too if that is not that the lock is held.
func Take(ctx context.Context, d claimer, req driver.Request) (driver.Claim, error) {
	claim := d.Claim(req)
	_, err := claim.Ask(ctx)
	if errors.Is(err, driver.ErrHeld) {
		return nil, err
	}
	return claim, err
}

// Wait asks until the lock is granted, ctx ends, or what is answered has been failures for half a
// TTL. It tells of each answer, and returns the claim in any case: released, if it was not granted.
func Wait(ctx context.Context, d claimer, req driver.Request, answered func(error)) (driver.Claim, error) {
	woken := make(chan struct{}, 1)
	req.Wake = func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	claim := d.Claim(req)
	var failing time.Time
	for {
		sent := time.Now()
		rctx, cancel := context.WithTimeout(ctx, req.TTL/4)
		next, err := claim.Ask(rctx)
		cancel()
		switch {
		case err == nil:
			return claim, nil
		case ctx.Err() != nil:
			return claim, released(claim, ctx.Err())
		case errors.Is(err, driver.ErrHeld):
			failing = time.Time{}
		default:
			if failing.IsZero() {
				failing = sent
			}
			if next = 10 * time.Millisecond; time.Since(failing) >= req.TTL/2-next {
				return claim, released(claim, err)
			}
		}
		answered(err)
		select {
		case <-woken:
		case <-time.After(next):
		case <-ctx.Done():
			return claim, released(claim, ctx.Err())
		}
	}
}

func released(claim driver.Claim, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_ = claim.Release(ctx)
	return err
}

// Share is Take for a share.
func Share(ctx context.Context, d claimer, req driver.Request) (driver.Claim, error) {
	req.Shared = true
	return Take(ctx, d, req)
}

// Propose asks d, a quorum.Node, once, with that token. It returns nil if the node cannot know the owner.
func Propose(ctx context.Context, d claimer, req driver.Request, token uint64) (quorum.Candidate, error) {
	c := d.(interface {
		Candidate(req driver.Request, place uint64, woken func(kept bool)) quorum.Candidate
	}).Candidate(req, 0, nil)
	_, err := c.Propose(ctx, token)
	if err != nil && !c.Known() {
		return nil, err
	}
	return c, err
}

// List returns the names that d lists, sorted, how many have none, and how many pages that took.
func List(t *testing.T, d driver.Operator, prefix string) (names []string, unnamed, pages int) {
	t.Helper()
	for next := d.List(prefix); ; {
		page, err := next(t.Context())
		require.NoError(t, err)
		pages++
		names, unnamed = append(names, page.Names...), unnamed+page.Unnamed
		if page.Last {
			slices.Sort(names)
			return names, unnamed, pages
		}
	}
}
