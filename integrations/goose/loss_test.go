package goose_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	lockergoose "github.com/go-locker/locker/integrations/goose"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// losing is a lock whose holder is about to lose it.
type losing struct {
	url   string
	first []locker.Option // of the holder
	next  []locker.Option // of who comes after the loss
	lose  func()
}

// losses are ways to lose a lock of each backend. The servers are the test's own.
var losses = map[string]func(t *testing.T) losing{
	"memory, not renewed": func(*testing.T) losing {
		return losing{"mem://" + space(), []locker.Option{locker.WithTTL(time.Second), locker.WithoutRenewal()}, nil, func() {}}
	},
	"redis, wiped": func(t *testing.T) losing {
		t.Helper()
		s := testserver.Redis(t)
		return losing{s.URL() + "?ttl=2s", nil, nil, func() { s.Do("FLUSHALL") }}
	},
	"etcd, wiped": func(t *testing.T) losing {
		t.Helper()
		s := testserver.Etcd(t)
		return losing{"etcd://" + s.Addr() + "?ttl=2s", nil, []locker.Option{locker.WithTokenBase(1 << 32)}, func() {
			s.Kill()
			s.Wipe()
			s.Restart()
		}}
	},
}

// A migration under way ends with the loss, and leaves nothing.
func TestLoss_endsTheContextOfTheMigration(t *testing.T) {
	t.Parallel()
	for way, begin := range losses {
		for name, d := range databases {
			t.Run(way+", "+name, func(t *testing.T) {
				t.Parallel()
				l, d := begin(t), d(t)
				halfway := make(chan struct{})
				holder := newInstance(t, l.url, d, l.first...)
				p := holder.fenced(t, second(nil, func(ctx context.Context) error {
					close(halfway)
					<-ctx.Done() // as a long statement would
					return context.Cause(ctx)
				}))
				ctx, cancel := lockergoose.Context(t.Context())
				defer cancel()
				done := testwait.Go(func() error { _, err := p.Up(ctx); return err })
				select {
				case <-halfway:
				case err := <-done:
					t.Fatal("not halfway: ", err)
				}
				l.lose()
				require.ErrorIs(t, patience.Result(t, done), locker.ErrLost)
				require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
				holder.assertState(t, 0, 0)

				next := newInstance(t, l.url, d, l.next...)
				applied, err := next.fenced(t, second(nil, nil)).Up(t.Context())
				require.NoError(t, err)
				assert.Len(t, applied, 1)
			})
		}
	}
}

// Its server has lost the lock, and its holder has not heard of it: the database refuses the holder.
func TestLoss_thatTheHolderDoesNotKnowOf(t *testing.T) {
	t.Parallel()
	for name, d := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := testserver.Redis(t), d(t)
			url := s.URL() + "?ttl=5m"
			holder, next := newInstance(t, url, d), newInstance(t, url, d)
			p := holder.fenced(t, second(func(ctx context.Context) error {
				s.Do("FLUSHALL")
				_, err := next.fenced(t, second(nil, nil)).Up(ctx)
				return err
			}, nil))
			ctx, cancel := lockergoose.Context(t.Context())
			defer cancel()
			_, err := p.Up(ctx)
			require.ErrorIs(t, err, fence.ErrStale)
			require.ErrorContains(t, err, "apply version 2")
			next.assertState(t, 1, 1)
		})
	}
}

// Tokens of etcd are revisions. A server that begins anew gives out smaller ones, which the database refuses until they get a base.
func TestLoss_ofTheTokensNeedsATokenBase(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	url, d := "etcd://"+s.Addr(), databases["SQLite"](t)
	before := newInstance(t, url, d)
	for range 10 {
		require.NoError(t, before.mutex.Lock(t.Context()))
		require.NoError(t, before.mutex.Unlock(t.Context()))
	}
	_, err := before.fenced(t).Up(t.Context())
	require.NoError(t, err)
	s.Kill()
	s.Wipe()
	s.Restart()

	_, err = newInstance(t, url, d).fenced(t, second(nil, nil)).Up(t.Context())
	require.ErrorIs(t, err, fence.ErrStale)
	require.ErrorContains(t, err, "begin as the holder")
	_, err = newInstance(t, url, d, locker.WithTokenBase(1000)).fenced(t, second(nil, nil)).Up(t.Context())
	require.NoError(t, err)
}
