package core_test

import (
	"context"
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
	driver.Claim

	mu     sync.Mutex
	called []string
}

func (l *doubtful) note(method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.called = append(l.called, method)
}

func (l *doubtful) Token() uint64           { l.note("Token"); return l.Claim.Token() }
func (l *doubtful) Validity() time.Duration { l.note("Validity"); return l.Claim.Validity() }
func (l *doubtful) NotifyLost(func())       { l.note("NotifyLost") }

func (l *doubtful) Extend(ctx context.Context, ttl time.Duration) error {
	l.note("Extend")
	return l.Claim.Extend(ctx, ttl)
}

func (l *doubtful) Release(ctx context.Context) error {
	l.note("Release")
	return l.Claim.Release(ctx)
}

// Whether it waits or not, and whatever the error is.
func TestDriver_claimOfUnknownOutcomeIsReleasedAndAskedForNothingButItsValidity(t *testing.T) {
	each(t, map[string]func(*locker.Mutex, context.Context) error{
		"once": (*locker.Mutex).TryLock, "waiting": (*locker.Mutex).Lock,
	}, func(t *testing.T, b *backend, lock func(*locker.Mutex, context.Context) error) {
		b.every(release, unreachable)
		b.every(acquire, unheard)
		var c *doubtful
		d := &fakeDriver{b: b, wrap: func(claim driver.Claim) driver.Claim {
			c = &doubtful{Claim: claim}
			return c
		}}
		require.ErrorIs(t, lock(clientOf(t, d).Mutex("x"), t.Context()), errRefused)
		time.Sleep(3 * ttl)
		synctest.Wait()
		assert.Greater(t, len(b.calls(release)), 5)
		slices.Sort(c.called)
		assert.Equal(t, []string{"Release", "Validity"}, slices.Compact(c.called))
	})
}
