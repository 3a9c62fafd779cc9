package redis_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

type opKey struct{}

// origins keeps of which call of a lock each script is, as go-redis's own tracing would.
type origins struct {
	roundTrips
	mu   sync.Mutex
	seen []any
}

func (o *origins) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if isScript(cmd) {
			o.mu.Lock()
			o.seen = append(o.seen, ctx.Value(opKey{}))
			o.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

// observeOrigins has each call of a lock carry its name and number.
func observeOrigins() locker.Option {
	n := 0
	return locker.WithObserver(locker.Observer{Start: func(ctx context.Context, call locker.Call) context.Context {
		n++
		return context.WithValue(ctx, opKey{}, fmt.Sprint(call.Op, " ", n))
	}})
}

func TestObserver_requestsCarryItsContext(t *testing.T) {
	t.Parallel()
	rdb, ctx := connect(t, testserver.Redis(t).Addr()), t.Context()
	loadScripts(t, rdb)
	var sent origins
	rdb.AddHook(&sent)
	c := clientOf(t, rdb, observeOrigins(), locker.WithoutRenewal())
	warm(t, c)
	sent.seen = nil
	m := c.Mutex("x")
	require.NoError(t, m.Lock(ctx))
	require.NoError(t, m.Extend(ctx))
	require.NoError(t, m.Unlock(context.WithoutCancel(ctx)))
	require.NoError(t, m.TryLock(ctx))
	require.NoError(t, m.Unlock(ctx))
	assert.Equal(t, []any{"lock 3", "extend 4", "unlock 5", "trylock 6", "unlock 7"}, sent.seen)
}

func TestObserver_hearsThatALockWasAnothers(t *testing.T) {
	t.Parallel()
	var contended []bool
	addr, ctx := testserver.Redis(t).Addr(), t.Context()
	watched := newClient(t, addr, locker.WithObserver(locker.Observer{
		Done: func(_ context.Context, _ locker.Call, r locker.Result) { contended = append(contended, r.Contended) },
	}))
	other := newClient(t, addr).Mutex("x")
	require.NoError(t, other.Lock(ctx))
	m := watched.Mutex("x")
	require.ErrorIs(t, m.TryLock(ctx), locker.ErrHeld)
	brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, m.Lock(brief), locker.ErrHeld)
	rdb := connect(t, addr)
	eventually(t, "it waits no more", func() bool { return rdb.ZCard(ctx, keyOf("x")+":queue").Val() == 0 })
	require.NoError(t, other.Unlock(ctx))
	require.NoError(t, m.Lock(ctx))
	assert.Equal(t, []bool{true, true, false}, contended)
}
