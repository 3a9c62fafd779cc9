package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// logged runs f with a logger, and returns what was logged, a line a record.
func logged(t *testing.T, f func(t *testing.T, b *backend, opts ...locker.Option)) []string {
	t.Helper()
	var out bytes.Buffer
	bubble(t, func(t *testing.T, b *backend) {
		logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		f(t, b, locker.WithLogger(logger), locker.WithMetadata("secret"))
		synctest.Wait()
	})
	assert.NotContains(t, out.String(), "secret")
	text := regexp.MustCompile(`(?m)^time=\S+ `).ReplaceAllString(out.String(), "")
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func TestLog_ofLosses(t *testing.T) {
	lost := func(end func(*testing.T, *backend, *locker.Client, *locker.Mutex)) []string {
		return logged(t, func(t *testing.T, b *backend, opts ...locker.Option) {
			c := b.client(t, append(opts, locker.WithoutRenewal())...)
			m := c.Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			time.Sleep(2 * time.Second)
			end(t, b, c, m)
			<-m.Lost()
		})
	}
	assert.Equal(t, []string{`level=WARN msg="lock lost" name=x token=1 cause=expired held=9.898s`},
		lost(func(*testing.T, *backend, *locker.Client, *locker.Mutex) {}))
	assert.Equal(t, []string{`level=WARN msg="lock lost" name=x token=1 cause=revoked held=2s`},
		lost(func(t *testing.T, b *backend, _ *locker.Client, m *locker.Mutex) {
			b.steal("x")
			require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
		}))
	assert.Equal(t, []string{`level=INFO msg="lock lost" name=x token=1 cause=closed held=2s`},
		lost(func(t *testing.T, _ *backend, c *locker.Client, _ *locker.Mutex) { require.NoError(t, c.Close()) }))
}

func TestLog_ofRenewals(t *testing.T) {
	lines := logged(t, func(t *testing.T, b *backend, opts ...locker.Option) {
		m := b.locked(t, "x", opts...)
		b.next(extend, unreachable, unreachable)
		time.Sleep(ttl)
		b.every(extend, hangs)
		<-m.Lost()
	})
	require.Len(t, lines, 4)
	assert.Regexp(t, `^level=WARN msg="lock not renewed" name=x token=1 expires_in=6\.\d+s err="connection refused"$`, lines[0])
	assert.Equal(t, `level=INFO msg="lock renewed again" name=x token=1 failed=2`, lines[1])
	assert.Regexp(t, `^level=WARN msg="lock not renewed" .* err="the backend has not answered in time"$`, lines[2])
	assert.Regexp(t, `^level=WARN msg="lock lost" .* cause=expired`, lines[3])
}

func TestLog_ofReleases(t *testing.T) {
	late := logged(t, func(t *testing.T, b *backend, opts ...locker.Option) {
		c := b.client(t, opts...)
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		b.next(release, unreachable, unreachable, unreachable)
		require.ErrorIs(t, m.Unlock(t.Context()), errRefused)
		time.Sleep(ttl)
		b.next(acquire, unheard, unheard, unheard)
		b.next(release, unreachable)
		require.ErrorIs(t, c.Mutex("y").Lock(t.Context()), errRefused)
		time.Sleep(ttl)
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, m.Lock(t.Context()))
		b.next(release, unreachable)
		b.steal("x")
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
	})
	require.Len(t, late, 2, "nothing of what goes well, or is another's by then")
	assert.Regexp(t, `^level=INFO msg="lock released late" name=x after=\S+s$`, late[0])
	assert.Regexp(t, `^level=DEBUG msg="lock released late" name=y after=\S+s$`, late[1])

	never := logged(t, func(t *testing.T, b *backend, opts ...locker.Option) {
		m := b.locked(t, "x", opts...)
		b.down(unreachable)
		require.ErrorIs(t, m.Unlock(t.Context()), errRefused)
		time.Sleep(2 * ttl)
	})
	require.Len(t, never, 1)
	assert.Regexp(t, `^level=WARN msg="lock not released" name=x after=\S+s err="connection refused"$`, never[0])

	closed := logged(t, func(t *testing.T, b *backend, opts ...locker.Option) {
		c := b.client(t, opts...)
		require.NoError(t, c.Mutex("x").Lock(t.Context()))
		b.down(unreachable)
		require.ErrorIs(t, c.Close(), errRefused)
	})
	require.Len(t, closed, 2, "%q", closed)
	assert.Regexp(t, `^level=WARN msg="lock not released" name=x after=\S+s err="connection refused"$`, closed[1])
}

// The time of a record is when it happened, and those that do not fit are counted.
func TestLog_ofAHandlerThatFallsBehind(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		free := make(chan struct{})
		slow := &logs{Handler: slog.DiscardHandler, wait: func() { <-free }}
		c := b.client(t, locker.WithoutRenewal(), locker.WithLogger(slog.New(slow)))
		const many = 21_000 // up to 10,000 of them in the hands of the handler, 10,000 behind those, and others dropped
		for i := range many {
			require.NoError(t, c.Mutex(fmt.Sprint(i)).Lock(t.Context()))
		}
		lost := time.Now().Add(life)
		time.Sleep(ttl)
		synctest.Wait()
		close(free)
		synctest.Wait()
		handled := len(slow.messages())
		require.Less(t, handled, many)
		require.GreaterOrEqual(t, handled, 10_000)
		assert.Equal(t, lost, slow.records[handled-1].Time)

		m := c.Mutex("another")
		require.NoError(t, m.Lock(t.Context()))
		<-m.Lost()
		synctest.Wait()
		var missing int64 // told by the next that is handled, which may be an earlier one if the handler began late
		for _, r := range slow.records {
			missing += dropped(r)
		}
		assert.Equal(t, int64(many-handled), missing)
	})
}

func dropped(r slog.Record) (n int64) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "dropped" {
			n = a.Value.Int64()
		}
		return true
	})
	return n
}

// A handler that never returns costs Close its 5 s, and a program that closes nothing.
func TestClose_leavesAHandlerThatIsStuck(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		stuck := &logs{Handler: slog.DiscardHandler, wait: func() { <-b.over }}
		c := b.client(t, locker.WithoutRenewal(), locker.WithLogger(slog.New(stuck)))
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		<-m.Lost()
		var err error
		assert.Equal(t, 5*time.Second, took(func() { err = c.Close() }))
		assert.ErrorContains(t, err, "log handler")
	})
}

// What an Observer is told at Close it has been told when Close returns.
func TestClose_waitsForReports(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		var told error
		c := b.client(t, locker.WithObserver(locker.Observer{
			Ended: func(_ context.Context, _ locker.HoldID, e locker.HoldEnd) {
				time.Sleep(time.Second)
				told = errors.New(string(e.Cause))
			},
		}))
		require.NoError(t, c.Mutex("x").Lock(t.Context()))
		require.NoError(t, c.Close())
		assert.EqualError(t, told, "closed")
	})
}
