package postgres

import (
	"context"
	"encoding/hex"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/sqllock"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

// The reply to a take was lost. Asked again, the server has granted the lock to the same owner.
func TestAsk_afterATakeWhoseReplyWasLost(t *testing.T) {
	d := newTestDriver(t)
	for _, wake := range []func(){nil, func() {}} {
		c := d.Claim(driver.Request{Name: "name", TTL: time.Minute, Wake: wake}).(*claim)
		_, err := c.Ask(t.Context())
		require.NoError(t, err)
		g := c.hold.Swap(nil)
		c.granted, c.doubtful = false, &sent{g.era, 0}
		_, err = c.Ask(t.Context())
		require.NoError(t, err, "it is not another's")
		assert.EqualValues(t, g.token, c.Token())
		require.NoError(t, c.Release(t.Context()))
	}
}

// A take that arrives after its clean-up takes nothing, whether its name has a row or not.
func TestRelease_beforeItsTakeArrives(t *testing.T) {
	d := newTestDriver(t)
	for _, name := range []string{"has a row", "has none"} {
		req := driver.Request{Name: name, TTL: time.Minute, Wake: func() {}}
		if name == "has a row" {
			require.NoError(t, take(t, d, name).Release(t.Context()))
		} else {
			require.NoError(t, d.exec(t.Context(), "DELETE FROM locker_locks WHERE key = $1", sqllock.Key(name)))
		}
		now, err := d.enter(t.Context(), req.TTL)
		require.NoError(t, err)
		last, _ := d.last(sqllock.Key(name), now)
		with := sent{now.number, last.version}
		late := d.Claim(req).(*claim)
		late.known, late.doubtful = true, &with
		require.ErrorIs(t, late.Release(t.Context()), locker.ErrLost)
		a, err := late.askOnce(t.Context(), with)
		require.NoError(t, err)
		assert.EqualValues(t, isStale, a.state, name)

		next := take(t, d, name)
		require.ErrorIs(t, late.Release(t.Context()), locker.ErrLost)
		require.NoError(t, next.Extend(t.Context(), req.TTL), "it was not another's to release")
		page, err := d.List("")(t.Context())
		require.NoError(t, err)
		assert.Contains(t, page.Names, name)
	}
}

// A Driver that has not seen a lock asks with the version of new rows, which may be higher than
// that of the lock's row. The row gets there by releases of others. The late request takes nothing.
func TestRelease_beforeATakeOfAHigherVersionArrives(t *testing.T) {
	d := newTestDriver(t)
	req := driver.Request{Name: "name", TTL: time.Minute}
	require.NoError(t, take(t, d, req.Name).Release(t.Context()))
	now, _ := d.eras.current(req.TTL)
	releaseInDoubt := func(with sent) *claim {
		c := d.Claim(req).(*claim)
		c.known, c.doubtful = true, &with
		require.ErrorIs(t, c.Release(t.Context()), driver.ErrLost)
		return c
	}
	higher := sent{now.number, now.version + 1}
	late := releaseInDoubt(higher)
	releaseInDoubt(sent{now.number, now.version})
	a, err := late.askOnce(t.Context(), higher)
	require.NoError(t, err)
	assert.EqualValues(t, isStale, a.state)
}

// The grace has begun, and a take of another was given up without an answer: its release has made
// the row. The holder of before gives the lock back all the same.
func TestRelease_inTheGraceAfterARowWasMade(t *testing.T) {
	d := newTestDriver(t)
	req := driver.Request{Name: "name", TTL: time.Minute}
	holder := take(t, d, req.Name)
	require.NoError(t, d.exec(t.Context(), "TRUNCATE locker_locks"))
	now, err := d.confirm(t.Context(), era{number: holder.hold.Load().era}, req.TTL)
	require.NoError(t, err)
	late := d.Claim(req).(*claim)
	late.known, late.doubtful = true, &sent{now.number, now.version}
	require.ErrorIs(t, late.Release(t.Context()), driver.ErrLost)
	require.Equal(t, 2, rowsOf(t, d), "one is that of the era")
	require.NoError(t, holder.Release(t.Context()))
}

// A release was not answered, and another has been granted the lock since. Then the server loses the
// table. The release that is tried again takes nothing from the holder.
func TestRelease_notAnsweredBeforeTheLoss(t *testing.T) {
	for _, reclaims := range []bool{false, true} {
		d := newTestDriver(t)
		req := driver.Request{Name: "name", TTL: time.Minute}
		lose := func() { require.NoError(t, d.exec(t.Context(), "TRUNCATE locker_locks")) }
		first := take(t, d, req.Name)
		if reclaims { // the release finds no row, and the one that follows the reclaim is not answered
			lose()
		}
		require.NoError(t, first.Release(t.Context()))
		first.leaving = true
		second := take(t, d, req.Name)
		lose()
		if err := first.Release(t.Context()); err != nil {
			require.ErrorIs(t, err, driver.ErrLost)
		}
		_, err := claims.Take(t.Context(), d, req)
		require.ErrorIs(t, err, driver.ErrHeld, "the holder has not been heard of since the loss")
		require.NoError(t, second.Extend(t.Context(), req.TTL))
	}
}

// A renewal that waits for its turn extends a hold, and grants none.
func TestExtendInTurn_ofAHoldThatHasExpired(t *testing.T) {
	d := newTestDriver(t)
	l := take(t, d, "name")
	require.NoError(t, d.exec(t.Context(), "UPDATE locker_locks SET expires_at = clock_timestamp() WHERE key <> ''"))
	now, _ := d.eras.current(time.Minute)
	require.ErrorIs(t, l.extendInTurn(t.Context(), now, time.Minute), driver.ErrLost)
}

// A request arrives after its claim was granted the lock by another, and lost it. It leaves no
// place in the queue.
func TestRelease_afterARequestThatArrivesLate(t *testing.T) {
	d := newTestDriver(t)
	req := driver.Request{Name: "name", TTL: time.Minute, Wake: func() {}}
	c := d.Claim(req).(*claim)
	_, err := c.Ask(t.Context())
	require.NoError(t, err)
	g := c.hold.Load()
	c.doubtful = &sent{g.era, 0}
	require.NoError(t, d.exec(t.Context(), "UPDATE locker_locks SET owner = '' WHERE key = $1", c.key)) // as if it had expired
	next := take(t, d, "name")
	a, err := c.askOnce(t.Context(), *c.doubtful)
	require.NoError(t, err)
	require.EqualValues(t, isHeld, a.state)
	require.ErrorIs(t, c.Release(t.Context()), driver.ErrLost)
	state, err := d.Inspect(t.Context(), req.Name)
	require.NoError(t, err)
	assert.Empty(t, state.Waiters)
	require.NoError(t, next.Release(t.Context()))
}

// A lock is handed over to a claim whose process was stopped for so long that nobody knows its TTL
// any more. The claim registers it before it holds.
func TestAsk_whenAHandOverComesLate(t *testing.T) {
	d := newTestDriver(t)
	first := take(t, d, "name")
	c := d.Claim(driver.Request{Name: "name", TTL: time.Hour, Wake: func() {}}).(*claim)
	_, err := c.Ask(t.Context())
	require.ErrorIs(t, err, driver.ErrHeld)
	require.NoError(t, first.Release(t.Context()))
	require.NotNil(t, c.handed.Load())
	d.eras.forget(c.handed.Load().era)
	require.NoError(t, d.exec(t.Context(), "DELETE FROM locker_locks_ttls"))
	_, err = c.Ask(t.Context())
	require.NoError(t, err)
	var longest int64
	require.NoError(t, d.pool.QueryRow(t.Context(), "SELECT max(ttl) FROM locker_locks_ttls").Scan(&longest))
	assert.Equal(t, time.Hour.Microseconds(), longest)
	require.NoError(t, c.Release(t.Context()))
}

// The listener asks whether it hears. A hand-over that arrives instead of the answer is not lost.
func TestListener_aHandOverWhileItAsksWhetherItHears(t *testing.T) {
	d := newTestDriver(t)
	woken := 0
	c := d.Claim(driver.Request{Name: "name", TTL: time.Minute, Wake: func() { woken++ }}).(*claim)
	d.waiting.enter(c)
	defer d.waiting.leave(c)
	conn, err := d.listener.connect(t.Context())
	require.NoError(t, err)
	defer closeConn(conn)
	require.NoError(t, d.exec(t.Context(), notify.text, d.listener.channel, hex.EncodeToString(c.owner)))
	require.NoError(t, d.listener.check(t.Context(), conn))
	assert.Equal(t, 1, woken)
}

// The notification of a hand-over is lost. The next beat wakes the waiter that was handed the lock,
// though another came to this Driver before it, whose request reached the server later.
func TestBeat_afterANotificationWasLost(t *testing.T) {
	d := newTestDriver(t)
	d.waiting.running = true // so that nothing else wakes
	holder := take(t, d, "name")
	var woken [2]int
	var waiters [2]*claim
	for i := range waiters {
		req := driver.Request{Name: "name", TTL: time.Minute, Wake: func() { woken[i]++ }}
		waiters[i] = d.Claim(req).(*claim)
		_, err := waiters[i].Ask(t.Context())
		require.ErrorIs(t, err, driver.ErrHeld)
	}
	woken = [2]int{} // the first request of a Driver wakes the others
	require.NoError(t, d.exec(t.Context(), "UPDATE locker_locks_waiters SET place = 100 WHERE owner = $1", waiters[0].owner))
	require.NoError(t, d.exec(t.Context(), "SELECT locker_locks_settle_v1(t, 'another!', $2) FROM locker_locks AS t WHERE key = $1",
		waiters[0].key, holder.owner))
	d.waiting.beat(5 * time.Second)
	assert.Equal(t, [2]int{0, 1}, woken)
	_, err := waiters[1].Ask(t.Context())
	require.NoError(t, err)
	require.NoError(t, waiters[1].Release(t.Context()))
	require.NoError(t, waiters[0].Release(t.Context()), "it was handed the lock")
}

// A Driver without waiters sends no beats, so its next waiter may come just before it counts as dead.
func TestAsk_makesTheClientCountForALongTime(t *testing.T) {
	d := newTestDriver(t)
	d.waiting.running = true
	take(t, d, "name")
	for _, left := range []string{"0 s", "0.2 s", "4 s"} {
		require.NoError(t, d.exec(t.Context(), "INSERT INTO locker_locks_clients VALUES ($1, now() + $2::interval) "+
			"ON CONFLICT (client) DO UPDATE SET alive_until = excluded.alive_until", d.waiting.id, left))
		queued(t, d, "name")
		var long bool
		require.NoError(t, d.pool.QueryRow(t.Context(),
			"SELECT alive_until > now() + interval '2 s' FROM locker_locks_clients WHERE client = $1", d.waiting.id).Scan(&long))
		assert.True(t, long, "there were %s left", left)
	}
}

// Without a subscription a Driver beats up to ten times a second. Each read is cheap, a write is not.
func TestBeat_writesNothingSoonAfterAnother(t *testing.T) {
	d := newTestDriver(t)
	d.waiting.running = true
	take(t, d, "name")
	queued(t, d, "name")
	version := func() (xmin string) {
		require.NoError(t, d.pool.QueryRow(t.Context(),
			"SELECT xmin::text FROM locker_locks_clients WHERE client = $1", d.waiting.id).Scan(&xmin))
		return xmin
	}
	d.waiting.beat(5 * time.Second)
	first := version()
	d.waiting.beat(5 * time.Second)
	assert.Equal(t, first, version(), "it counts as alive for nearly as long as after the first")
	for _, left := range []string{"3 s", "1 h"} { // a quarter of the mark later; after the clock was set back
		require.NoError(t, d.exec(t.Context(),
			"UPDATE locker_locks_clients SET alive_until = now() + $1::interval WHERE client = $2", left, d.waiting.id))
		before := version()
		d.waiting.beat(5 * time.Second)
		assert.NotEqual(t, before, version(), left)
	}
}

// A request that ends with its context says so, also if the server answers that it was cancelled: a
// wait that is interrupted then has what was answered before, and not that.
func TestPipeline_aRequestThatTheServerCancels(t *testing.T) {
	d := newTestDriver(t, func(config *pgxpool.Config) {
		config.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: time.Minute}
		}
	})
	require.NoError(t, d.pool.Ping(t.Context()), "it has a connection")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := d.asks.do(ctx, named("SELECT pg_sleep(60)"))
	require.ErrorContains(t, err, "57014")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A program that computes its TTLs uses each of them once. Its Driver keeps none for ever.
func TestEras_forgetTTLs(t *testing.T) {
	d := newTestDriver(t)
	for i := range 3 {
		c, err := claims.Take(t.Context(), d, driver.Request{Name: "name", TTL: time.Second + time.Duration(i)*time.Millisecond})
		require.NoError(t, err)
		require.NoError(t, c.Release(t.Context()))
		for ttl := range d.eras.registered {
			d.eras.registered[ttl] = time.Now().Add(-ttl - registerAgain) // a while later
		}
	}
	assert.Len(t, d.eras.registered, 1)
	assert.Empty(t, d.eras.claims)
}

// While holds live, the connection in reserve is made again beside them: a firewall that lets no new
// one through does not keep them waiting.
func TestEras_whenNoNewConnectionCanBeMade(t *testing.T) {
	t.Parallel()
	var hangs atomic.Bool
	d := newTestDriver(t, func(config *pgxpool.Config) {
		config.BeforeConnect = func(ctx context.Context, _ *pgx.ConnConfig) error {
			if hangs.Load() {
				<-ctx.Done()
			}
			return ctx.Err()
		}
	})
	l := take(t, d, "x")
	d.inReserve().Reset()
	hangs.Store(true)
	d.eras.mu.Lock()
	d.eras.registered[time.Minute] = clock.Now() // half a minute later
	d.eras.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	extended := make(chan error, 1)
	go func() { extended <- l.Extend(ctx, time.Minute) }()
	select {
	case err := <-extended:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Error("the Extend waits for a new connection")
	}
	cancel()
	hangs.Store(false)
}

// A TTL that the standby knows is registered again without it: holds live while it is away.
func TestEras_aSynchronousStandbyThatIsAway(t *testing.T) {
	t.Parallel()
	d := newDriverOf(t, testserver.Postgres(t).URL())
	l := take(t, d, "x")
	require.NoError(t, d.exec(t.Context(), "ALTER SYSTEM SET synchronous_standby_names = 'nobody'"))
	require.NoError(t, d.exec(t.Context(), "SELECT pg_reload_conf()"))
	require.Eventually(t, func() bool {
		var name string
		return d.pool.QueryRow(t.Context(), "SHOW synchronous_standby_names").Scan(&name) == nil && name == "nobody"
	}, time.Minute, time.Millisecond)
	d.eras.mu.Lock()
	d.eras.registered[time.Minute] = clock.Now() // half a minute later
	d.eras.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, l.Extend(ctx, time.Minute))
	require.NoError(t, l.Release(ctx))
}
