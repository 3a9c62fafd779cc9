package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
)

// waiting is a claim that waits.
type waiting struct {
	cancel   context.CancelFunc
	done     chan struct{}
	lease    driver.Lease
	err      error
	mu       sync.Mutex
	answered []error
}

// wait has a waiter come, who is in its place when it returns.
func wait(t *testing.T, d *backend) *waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &waiting{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = claims.Wait(ctx, d, askFor("x"), func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.answered = append(w.answered, err)
		})
	}()
	synctest.Wait()
	return w
}

// told reports whether the waiter was answered with such an error.
func (w *waiting) told(is func(error) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.answered, is)
}

func isHeld(err error) bool { return errors.Is(err, driver.ErrHeld) }

// isOver reports whether the call has returned.
func (w *waiting) isOver() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// leave ends the wait, or the hold that came of it.
func (w *waiting) leave() {
	w.cancel()
	<-w.done
	if w.lease != nil {
		_ = w.lease.Release(context.Background()) // what a node does not answer goes on
	}
}

// ownedBy has a node keep the lock for another, for a TTL.
func ownedBy(owner, place uint64) func(r *register) {
	return func(r *register) {
		r.known, r.owner, r.place, r.until = true, owner, place, time.Now().Add(ttl).UnixNano()
	}
}

func ownedForLong(r *register) {
	ownedBy(another, 0)(r)
	r.until = time.Now().Add(time.Hour).UnixNano()
}

func freed(r *register) {
	r.owner = 0
	r.keepForFirst(time.Now().UnixNano(), 0)
}

// ownerOf returns who has the lock at the server, or 0.
func (s *stage) ownerOf(name string) (owner uint64) {
	s.edit(name, func(r *register) {
		if r.left(time.Now().UnixNano()) {
			owner = r.owner
		}
	})
	return owner
}

// keptPlace is the place that the server keeps the lock for, or 0.
func (s *stage) keptPlace(name string) (place uint64) {
	s.edit(name, func(r *register) { place = r.kept.place })
	return place
}

const (
	another = 1 << 40         // an owner that is no client of the test
	first   = uint64(1)       // a place before all others
	last    = uint64(1) << 62 // one after all others
)

// waitsAt has an owner that is no client of the test wait at a node.
func waitsAt(owner, place uint64) func(r *register) {
	return func(r *register) { r.enter(inQueue{owner: owner, place: place, tell: func() {}}) }
}

// keptQuietly has a node keep the lock for its first waiter, who is not told.
func keptQuietly(r *register) {
	r.owner, r.kept, r.keptUntil = 0, r.queue[0], time.Now().UnixNano()+keptFor
	r.queue = r.queue[1:]
}
