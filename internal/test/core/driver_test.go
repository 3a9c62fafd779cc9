package core_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// doubtful is a lease, and may be more, that notes what is called.
type doubtful struct {
	driver.Lease

	mu     sync.Mutex
	called []string
}

func (l *doubtful) note(method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.called = append(l.called, method)
}

func (l *doubtful) Token() uint64           { l.note("Token"); return l.Lease.Token() }
func (l *doubtful) Validity() time.Duration { l.note("Validity"); return l.Lease.Validity() }
func (l *doubtful) NotifyLost(func())       { l.note("NotifyLost") }

func (l *doubtful) Extend(ctx context.Context, ttl time.Duration) error {
	l.note("Extend")
	return l.Lease.Extend(ctx, ttl)
}

func (l *doubtful) Release(ctx context.Context) error {
	l.note("Release")
	return l.Lease.Release(ctx)
}

// Whether it polls or waits in a queue, and whatever the error is.
func TestDriver_leaseBesideAnErrorIsReleasedAndAskedForNothingButItsValidity(t *testing.T) {
	for name, lock := range map[string]func(*locker.Mutex, context.Context) error{
		"polled": (*locker.Mutex).TryLock, "queued": (*locker.Mutex).Lock,
	} {
		for _, outcome := range []error{errRefused, errors.Join(locker.ErrHeld, errRefused)} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, b *backend) {
					b.every(release, unreachable)
					var l *doubtful
					take := func(ctx context.Context, req driver.Request) (driver.Lease, error) {
						granted, err := (&fakeDriver{b: b}).Acquire(ctx, req)
						require.NoError(t, err)
						l = &doubtful{Lease: granted}
						time.Sleep(time.Second)
						return l, outcome
					}
					d := &scripted{acquire: take, fakeDriver: &fakeDriver{b: b}}
					d.queue = func(ctx context.Context, req driver.Request, _ func(error)) (driver.Lease, error) {
						return take(ctx, req)
					}
					require.ErrorIs(t, lock(clientOf(t, d).Mutex("x"), t.Context()), errRefused)
					time.Sleep(3 * ttl)
					synctest.Wait()
					assert.Greater(t, len(b.calls(release)), 5)
					slices.Sort(l.called)
					assert.Equal(t, []string{"Release", "Validity"}, slices.Compact(l.called))
				})
			})
		}
	}
}
