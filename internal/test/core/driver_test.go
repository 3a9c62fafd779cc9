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

// What the core promises to a Driver, whether it calls Acquire or AcquireQueued.

// polled is a Driver of which the core sees no queue.
type polled struct{ *scripted }

// AcquireQueued hides that of scripted, and is none.
func (polled) AcquireQueued() {}

// inEachWay runs a test for each way in which the core may ask a Driver for a lease. lock has acquire called in that way.
func inEachWay(t *testing.T, test func(t *testing.T, b *backend, lock func(acquire acquiring) error)) {
	t.Helper()
	ways := map[string]func(*scripted) driver.Driver{
		"polled": func(d *scripted) driver.Driver { return polled{d} },
		"queued": func(d *scripted) driver.Driver { return d },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *backend) {
				d := &scripted{fakeDriver: &fakeDriver{b: b}}
				m := clientOf(t, way(d), locker.WithoutRenewal()).Mutex("x")
				test(t, b, func(acquire acquiring) error {
					d.acquire = acquire
					d.queue = func(ctx context.Context, req driver.Request, _ func(error)) (driver.Lease, error) {
						return acquire(ctx, req)
					}
					_, err := m.Acquire(t.Context())
					return err
				})
			})
		})
	}
}

type acquiring func(context.Context, driver.Request) (driver.Lease, error)

func TestDriver_ctxOfAcquireEndsWhenTheCallReturns(t *testing.T) {
	inEachWay(t, func(t *testing.T, b *backend, lock func(acquiring) error) {
		for _, err := range []error{errRefused, nil} {
			var done <-chan struct{} // of the context that the Driver was given
			require.ErrorIs(t, lock(func(own context.Context, req driver.Request) (driver.Lease, error) {
				require.NoError(t, own.Err())
				done = own.Done()
				if err != nil {
					return nil, err
				}
				return (&fakeDriver{b: b}).Acquire(own, req)
			}), err)
			select {
			case <-done:
			default:
				t.Errorf("Acquire has returned %v, and its context goes on", err)
			}
		}
		assert.NotZero(t, b.holder("x"), "the lease goes on")
	})
}

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

func (l *doubtful) Raise(context.Context, uint64) error { l.note("Raise"); return nil }

func (l *doubtful) Release(ctx context.Context) error {
	l.note("Release")
	return l.Lease.Release(ctx)
}

func TestDriver_leaseBesideAnErrorIsReleasedAndAskedForNothingButItsValidity(t *testing.T) {
	for name, outcome := range map[string]error{"refused": errRefused, "held": errors.Join(locker.ErrHeld, errRefused)} {
		t.Run(name, func(t *testing.T) {
			inEachWay(t, func(t *testing.T, b *backend, lock func(acquiring) error) {
				b.every(release, unreachable)
				var l *doubtful
				err := lock(func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					if l != nil { // tried again
						return nil, errRefused
					}
					granted, err := (&fakeDriver{b: b}).Acquire(ctx, req)
					require.NoError(t, err)
					l = &doubtful{Lease: granted}
					time.Sleep(time.Second)
					return l, outcome
				})
				require.ErrorIs(t, err, errRefused)
				time.Sleep(3 * ttl)
				synctest.Wait()
				assert.Greater(t, len(b.calls(release)), 5)
				slices.Sort(l.called)
				assert.Equal(t, []string{"Release", "Validity"}, slices.Compact(l.called))
			})
		})
	}
}
