package core_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
)

// span is the key under which a spy's contexts have the number of the call.
type span struct{}

// spy is an Observer that keeps what it is told.
type spy struct {
	mu       sync.Mutex
	spans    int
	calls    []locker.Call
	results  []locker.Result
	held     []locker.HoldID
	ended    []locker.HoldID
	endings  []locker.HoldEnd
	of       []any // the spans of held and ended
	renewals []locker.Renewal
}

func (s *spy) observer() locker.Option {
	return locker.WithObserver(locker.Observer{
		Start: func(ctx context.Context, _ locker.Call) context.Context {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.spans++
			return context.WithValue(ctx, span{}, s.spans)
		},
		Done: func(ctx context.Context, call locker.Call, result locker.Result) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.calls, s.results = append(s.calls, call), append(s.results, result)
		},
		Held: func(ctx context.Context, hold locker.HoldID) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.held, s.of = append(s.held, hold), append(s.of, ctx.Value(span{}))
		},
		Ended: func(ctx context.Context, hold locker.HoldID, ending locker.HoldEnd) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ended, s.endings, s.of = append(s.ended, hold), append(s.endings, ending), append(s.of, ctx.Value(span{}))
		},
		Renewed: func(_ locker.HoldID, renewal locker.Renewal) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.renewals = append(s.renewals, renewal)
		},
	})
}

// last are the latest call and its result.
func (s *spy) last() (locker.Call, locker.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[len(s.calls)-1], s.results[len(s.results)-1]
}

// renewed is what has been told by now of renewals.
func (s *spy) renewed() []locker.Renewal {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.renewals)
}

func TestObserver_hearsOfEachCallOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		s, ctx := &spy{}, t.Context()
		c := b.client(t, s.observer())
		m, n := c.Mutex("x"), c.Mutex("x")
		is := func(op string, token uint64, contended bool, err error) {
			t.Helper()
			call, r := s.last()
			assert.Equal(t, locker.Call{Op: op, Name: "x"}, call)
			assert.Equal(t, token, r.Token)
			assert.Equal(t, contended, r.Contended)
			assert.Equal(t, err, r.Err, "what the caller gets")
		}
		is("lock", 1, false, m.Lock(ctx))
		is("trylock", 0, true, n.TryLock(ctx))
		is("extend", 1, false, m.Extend(ctx))
		is("extend", 0, false, n.Extend(ctx))
		is("unlock", 1, false, m.Unlock(ctx))
		is("unlock", 0, false, m.Unlock(ctx))
		h, err := m.TryAcquire(ctx)
		is("trylock", 2, false, err)
		is("extend", 2, false, h.Extend(ctx))
		waiting := testwait.Go(func() error { return n.Lock(ctx) })
		time.Sleep(time.Second)
		is("unlock", 2, false, h.Unlock(ctx))
		is("lock", 3, true, <-waiting)
		_, r := s.last()
		assert.Greater(t, r.Took, time.Second)
		is("lock", 0, true, m.Lock(ending(t, time.Second)))
		is("unlock", 3, false, n.Unlock(ctx))
		assert.Len(t, s.calls, s.spans, "a Done for each Start")
		require.NoError(t, m.Do(ctx, func(ctx context.Context) error {
			assert.Nil(t, ctx.Value(span{}), "what runs under the lock is no part of locking it")
			is("lock", 4, false, nil)
			return nil
		}))
		is("unlock", 4, false, nil)
		require.ErrorContains(t, c.Mutex("").Lock(ctx), "empty")
		require.ErrorContains(t, c.Mutex("").Unlock(ctx), "empty")
		assert.Len(t, s.calls, s.spans)
		assert.Equal(t, s.held, s.ended)
	})
}

// So that the spans of a client library become children of an Observer's.
func TestObserver_givesTheDriverItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		s, ctx := &spy{}, t.Context()
		m := b.client(t, s.observer()).Mutex("x")
		b.next(release, unreachable, unreachable) // tries after the first are of the same call
		require.NoError(t, m.TryLock(ctx))
		require.NoError(t, m.Extend(ctx))
		require.NoError(t, m.Unlock(ctx))
		require.NoError(t, m.Lock(ctx))
		time.Sleep(ttl / 2)
		require.NoError(t, m.Unlock(ctx))
		synctest.Wait()
		var spans []string
		for _, c := range b.sent {
			spans = append(spans, fmt.Sprint(c.op, " ", c.span))
		}
		assert.Equal(t, []string{
			"acquire 1", "extend 2", "release 3", "release 3", "release 3",
			"acquire 4", "extend <nil>", "release 5",
		}, spans, "the extend of no span is a renewal")
	})
}

func TestObserver_hearsHowEachHoldEnds(t *testing.T) {
	for cause, end := range map[locker.Cause]func(*testing.T, *backend, *locker.Client, *locker.Hold){
		locker.CauseUnlocked: func(t *testing.T, b *backend, _ *locker.Client, h *locker.Hold) {
			b.next(release, fault{request: time.Second})
			require.NoError(t, h.Unlock(t.Context()))
		},
		locker.CauseAbandoned: func(t *testing.T, _ *backend, _ *locker.Client, h *locker.Hold) { require.NoError(t, h.Abandon()) },
		locker.CauseExpired:   func(_ *testing.T, b *backend, _ *locker.Client, h *locker.Hold) { b.down(unreachable); <-h.Lost() },
		locker.CauseRevoked: func(t *testing.T, b *backend, _ *locker.Client, h *locker.Hold) {
			b.steal("x")
			require.ErrorIs(t, h.Extend(t.Context()), locker.ErrLost)
		},
		"revoked, as Unlock hears": func(t *testing.T, b *backend, _ *locker.Client, h *locker.Hold) {
			b.steal("x")
			require.ErrorIs(t, h.Unlock(t.Context()), locker.ErrLost)
		},
		"revoked, as a driver's own error says": func(t *testing.T, b *backend, _ *locker.Client, h *locker.Hold) {
			b.next(release, fault{lost: true, err: fmt.Errorf("no such key: %w", locker.ErrLost)})
			require.ErrorContains(t, h.Unlock(t.Context()), "no such key")
		},
		locker.CauseClosed: func(t *testing.T, _ *backend, c *locker.Client, _ *locker.Hold) { require.NoError(t, c.Close()) },
	} {
		t.Run(string(cause), func(t *testing.T) {
			name, _, byUnlock := strings.Cut(string(cause), ",")
			bubble(t, func(t *testing.T, b *backend) {
				s := &spy{}
				c := b.client(t, s.observer())
				h := acquired(t, c)
				time.Sleep(2 * time.Second)
				end(t, b, c, h)
				synctest.Wait()
				want := locker.HoldEnd{Cause: locker.Cause(name), Held: 2 * time.Second, Left: life - 2*time.Second}
				if cause == locker.CauseExpired {
					want.Held, want.Left = life, 0
				}
				assert.Equal(t, []locker.HoldID{{Name: "x", Token: 1}}, s.ended)
				assert.Equal(t, []locker.HoldEnd{want}, s.endings)
				of := []any{1, nil}
				if byUnlock || cause == locker.CauseUnlocked {
					of[1] = 2
				}
				assert.Equal(t, of, s.of, "the calls that began and ended it")
				_ = h.Unlock(t.Context())
				time.Sleep(2 * ttl)
				assert.Len(t, s.ended, 1, "it has ended once")
			})
		})
	}
}

func TestObserver_hearsHowLateRenewalsAre(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		s := &spy{}
		m := b.locked(t, s.observer())
		b.next(extend, unreachable, hangs)
		time.Sleep(ttl)
		heard := s.renewed()
		require.GreaterOrEqual(t, len(heard), 3)
		// The second one is given up in the moment in which the third is answered.
		slices.SortFunc(heard[:3], func(a, b locker.Renewal) int { return int(a.Lag - b.Lag) })
		assert.Zero(t, heard[0].Lag)
		require.ErrorIs(t, heard[0].Err, errRefused)
		assert.Greater(t, heard[1].Lag, time.Duration(0))
		noErrorIs(t, heard[1].Err, context.DeadlineExceeded, context.Canceled)
		assert.Greater(t, heard[2].Lag, heard[1].Lag, "still the same renewal")
		require.NoError(t, heard[2].Err)
		require.NoError(t, m.Extend(t.Context()))
		count := len(s.renewed())
		time.Sleep(ttl / 2)
		assert.Equal(t, []locker.Renewal{{}}, s.renewed()[count:], "in time again")
		b.steal("x")
		<-m.Hold().Lost()
		heard = s.renewed()
		require.ErrorIs(t, heard[len(heard)-1].Err, locker.ErrLost)
	})
}

// An Observer or a logger that blocks for ever, as on a full disk, costs Close its 5 s, and no more.
func TestReports_toWhomIsStuckDelayNoRenewalAndNoLoss(t *testing.T) {
	each(t, map[string]func(stuck func()) locker.Option{
		"Observer": func(stuck func()) locker.Option {
			return locker.WithObserver(locker.Observer{
				Renewed: func(locker.HoldID, locker.Renewal) { stuck() },
				Ended:   func(context.Context, locker.HoldID, locker.HoldEnd) { stuck() },
			})
		},
		"log handler": func(stuck func()) locker.Option {
			return locker.WithLogger(slog.New(&logs{Handler: slog.DiscardHandler, wait: stuck}))
		},
		"log handler, asked for its level": func(stuck func()) locker.Option {
			return locker.WithLogger(slog.New(&logs{Handler: slog.DiscardHandler, asked: true, wait: stuck}))
		},
	}, func(t *testing.T, b *backend, to func(func()) locker.Option) {
		c := b.client(t, to(func() { <-b.over }))
		all := holdMany(t, c, 3)
		time.Sleep(3 * ttl)
		for _, m := range all {
			require.False(t, fired(m.Hold().Lost()), "renewed")
		}
		b.down(unreachable)
		time.Sleep(ttl)
		synctest.Wait()
		for _, m := range all {
			assert.True(t, fired(m.Hold().Lost()))
			require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		}
		b.down(fault{})
		var err error
		assert.Equal(t, 5*time.Second, took(func() { err = c.Close() }))
		who, _, _ := strings.Cut(strings.ReplaceAll(t.Name()[strings.IndexByte(t.Name(), '/')+1:], "_", " "), ",")
		require.ErrorContains(t, err, who)
	})
}

func TestObserver_hearsInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		var heard []string
		c := b.client(t, locker.WithObserver(locker.Observer{
			Renewed: func(_ locker.HoldID, r locker.Renewal) {
				time.Sleep(ttl) // slow, and behind
				heard = append(heard, fmt.Sprint("renewed ", r.Err == nil))
			},
			Ended: func(_ context.Context, _ locker.HoldID, e locker.HoldEnd) { heard = append(heard, string(e.Cause)) },
		}))
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		time.Sleep(ttl / 2)
		b.steal("x")
		<-m.Hold().Lost()
		time.Sleep(3 * ttl)
		synctest.Wait()
		assert.Equal(t, []string{"renewed true", "revoked", "renewed false"}, heard)
	})
}

// An Observer may take locks: of a store of its own that is locked by the same Client, say.
func TestObserver_mayCallWhatItObserves(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		var (
			m    *locker.Mutex
			seen []uint64
			see  = func() { seen = append(seen, m.FencingToken()); _ = m.Hold() }
		)
		c := b.client(t, locker.WithObserver(locker.Observer{
			Start: func(ctx context.Context, _ locker.Call) context.Context { see(); return ctx },
			Done:  func(context.Context, locker.Call, locker.Result) { see() },
			Held:  func(context.Context, locker.HoldID) { see() },
			Ended: func(ctx context.Context, _ locker.HoldID, _ locker.HoldEnd) {
				see()
				_ = m.Extend(context.Background())
			},
			Renewed: func(locker.HoldID, locker.Renewal) { see() },
		}))
		m = c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		time.Sleep(ttl / 2)
		b.steal("x")
		<-m.Hold().Lost()
		synctest.Wait()
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		assert.True(t, slices.Contains(seen, 1))
	})
}

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
			<-m.Hold().Lost()
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
		m := b.locked(t, opts...)
		b.next(extend, unreachable, unreachable)
		time.Sleep(ttl)
		b.every(extend, hangs)
		<-m.Hold().Lost()
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
		m := b.locked(t, opts...)
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
		<-m.Hold().Lost()
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
