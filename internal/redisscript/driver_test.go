package redisscript

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/test/claims"
)

var forOneSecond = driver.Request{Name: "x", TTL: time.Second}

// replies is an answer that is always the same.
func replies(reply any, err error) answer {
	return func(context.Context, script.Call) (any, error) { return reply, err }
}

func TestAcquire_anUnknownOutcomeReturnsTheLeaseToCleanUp(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		reply     any
		err       error
		wantLease bool
	}{
		"lost reply": {nil, boom, true},
		"not run":    {nil, notSent{boom}, false},
		"nonsense":   {[]any{int64(1), int64(2), int64(3)}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := answering(t, replies(c.reply, c.err))
			for _, wake := range []func(){nil, func() {}} {
				l := d.Claim(driver.Request{Name: "x", TTL: time.Second, Wake: wake})
				_, err := l.Ask(t.Context())
				require.Error(t, err)
				require.NotErrorIs(t, err, locker.ErrHeld)
				assert.Equal(t, c.wantLease, l.(*claim).there)
				if c.err != nil {
					assert.ErrorIs(t, err, c.err)
				}
			}
		})
	}
}

func TestAcquire_everyAttemptHasAnOwnerOfItsOwn(t *testing.T) {
	d, p := answering(t, replies(heldReply(-1), nil))
	seen := map[string]bool{}
	for range 1000 {
		_, err := claims.Take(t.Context(), d, forOneSecond)
		require.ErrorIs(t, err, locker.ErrHeld)
	}
	for _, c := range p.sent {
		assert.GreaterOrEqual(t, len(ownerOf(c)), 26, "128 bits in base 32")
		assert.False(t, seen[ownerOf(c)])
		seen[ownerOf(c)] = true
	}
}

// skewed is a server on which all is free, and whose clock is ahead of ours.
func skewed(ahead *time.Duration) answer {
	return func(_ context.Context, c script.Call) (any, error) {
		if c.Script == script.Extend {
			return int64(1), nil
		}
		now := nowMicro() + ahead.Microseconds()
		if by, _ := dueOf(c); now > by.Whole+by.Rest {
			return []any{int64(script.Late), now}, nil
		}
		return []any{int64(script.Granted), now, now, now}, nil
	}
}

func TestAcquire_lateByAWrongEstimateIsTriedOnceMore(t *testing.T) {
	var ahead time.Duration
	d, p := answering(t, skewed(&ahead))
	_, known := d.ServerTime()
	assert.False(t, known)
	for _, ahead = range []time.Duration{0, time.Hour, 24 * time.Hour, -time.Hour, 0} {
		lease, err := claims.Take(t.Context(), d, forOneSecond)
		require.NoError(t, err, "the server's clock jumped to %v", ahead)
		assert.NotZero(t, lease.Token())
		now, known := d.ServerTime()
		assert.True(t, known)
		assert.WithinDuration(t, time.Now().Add(ahead), now, 10*time.Second)
	}
	p.answer, p.sent = replies([]any{int64(script.Late), nowMicro()}, nil), nil
	lease, err := claims.Take(t.Context(), d, forOneSecond)
	require.Error(t, err)
	assert.False(t, lease.(*claim).there)
	require.NotErrorIs(t, err, locker.ErrHeld)
	assert.Len(t, p.sent, 2, "not endless")
}

// Nobody waits for a take after its context's deadline: that of a quorum's node is much shorter
// than half a TTL.
func TestAcquire_isNotToBeDoneAfterItsDeadline(t *testing.T) {
	d, p := answering(t, func(context.Context, script.Call) (any, error) { return grantedReply(), nil })
	long := driver.Request{Name: "x", TTL: time.Hour}
	for what, do := range map[string]func(context.Context) error{
		"Ask, once":    func(ctx context.Context) error { _, err := claims.Take(ctx, d, long); return err },
		"Ask, waiting": func(ctx context.Context) error { _, err := claims.Wait(ctx, d, long, func(error) {}); return err },
		"Propose":      func(ctx context.Context) error { _, err := claims.Propose(ctx, d, long, 7); return err },
	} {
		require.NoError(t, do(t.Context()), "brings the server's clock")
		for _, c := range []struct{ deadline, patience time.Duration }{{time.Minute, time.Minute}, {2 * time.Hour, long.TTL / 4}} {
			ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
			require.NoError(t, do(ctx), what)
			cancel()
			by, _ := dueOf(p.sent[len(p.sent)-1])
			assert.InDelta(t, nowMicro()+c.patience.Microseconds(), by.Whole+by.Rest, float64(10*time.Second.Microseconds()), "%s, %v", what, c.deadline)
		}
	}
}

// By an estimate that is wrong the script takes off what its request took, and more. If that cannot
// be made good, its owner counts no more than there is.
func TestAcquire_countsWhatTheScriptHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := driver.Request{Name: "x", TTL: time.Hour}
		jumped := time.Duration(0)
		takes := skewed(&jumped)
		d, _ := answering(t, func(ctx context.Context, c script.Call) (any, error) {
			if c.Script == script.Extend {
				return nil, io.ErrUnexpectedEOF // else the hold would be made to last
			}
			return takes(ctx, c)
		})
		for _, want := range []time.Duration{
			long.TTL, // the first brings the server's clock
			long.TTL*4/5 + long.TTL/100 + 2*time.Millisecond, // which has jumped since
			long.TTL, // and is known again
		} {
			lease, err := claims.Take(t.Context(), d, long)
			require.NoError(t, err)
			assert.Equal(t, want, lease.Validity())
			jumped = long.TTL / 5
		}
	})
}

// Two nodes of a Cluster, whose clocks differ a little, as NTP leaves them: nothing is late, and
// every hold lasts one TTL.
func TestAcquire_nodesWhoseClocksDifferALittleShortenNoHold(t *testing.T) {
	skew := time.Second
	d, _ := answering(t, skewed(&skew))
	for i := range 6 {
		skew = time.Second - skew
		l, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: 10 * time.Second})
		require.NoError(t, err)
		assert.Greater(t, l.Validity(), 10*time.Second*99/100-50*time.Millisecond, "take %d", i)
	}
}

// Clocks drift apart while nobody looks.
func TestAcquire_anOldEstimateIsRenewedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := answering(t, skewed(new(time.Duration)))
		for _, c := range []struct {
			idle time.Duration
			want int
		}{{0, 2}, {time.Minute, 1}, {2 * time.Minute, 2}} { // TTL 1 s
			time.Sleep(c.idle)
			p.sent = nil
			_, err := claims.Take(t.Context(), d, forOneSecond)
			require.NoError(t, err)
			assert.Len(t, p.sent, c.want, "requests after %v", c.idle)
		}
	})
}

func TestLease_validityIsFromBeforeTheRequestAndNeverMovesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delay := 50 * time.Millisecond
		d, _, leases := leasesOf(t, 1, func(context.Context, script.Call) (any, error) { time.Sleep(delay); return int64(1), nil })
		lease := leases[0]
		require.NoError(t, lease.Extend(t.Context(), time.Minute))
		assert.Equal(t, time.Minute-delay, lease.Validity())
		delay = 0
		require.NoError(t, lease.Extend(t.Context(), time.Second))
		assert.Equal(t, time.Minute-50*time.Millisecond, lease.Validity(), "a shorter extension takes nothing away")
		delay = 10 * time.Millisecond
		require.Equal(t, []error{nil}, d.ExtendAll(t.Context(), leases, time.Hour))
		assert.Equal(t, time.Hour-delay, lease.Validity())
	})
}

func TestLease_otherRepliesAreNoSuccess(t *testing.T) {
	d, p, leases := leasesOf(t, 1, nil)
	lease := leases[0].(quorum.Candidate)
	for _, reply := range []any{nil, "1", int64(0), int64(2), []any{int64(1)}, true} {
		what := fmt.Sprintf("%T %v", reply, reply)
		p.answer = replies(reply, nil)
		require.Error(t, lease.Extend(t.Context(), time.Second), what)
		require.Error(t, lease.Release(t.Context()), what)
		require.Error(t, lease.Raise(t.Context(), 8), what)
		require.Error(t, d.ExtendAll(t.Context(), leases, time.Minute)[0], what)
	}
	p.answer = replies(int64(-1), nil)
	require.ErrorIs(t, lease.Raise(t.Context(), 8), locker.ErrUnsupported, "too far ahead")
	assert.EqualValues(t, 7, lease.Token())
	p.answer = replies(int64(1), nil) // also what the server says to a release that is sent again
	require.NoError(t, lease.Raise(t.Context(), 8))
	assert.EqualValues(t, 8, lease.Token())
	require.ErrorIs(t, lease.Release(t.Context()), locker.ErrLost, "it said once that the hold had ended")
}

// Locks of one Client may have a TTL each: what was sent for the one before is not sent for another.
func TestDriver_sendsEachLocksOwnExpiry(t *testing.T) {
	d, p := answering(t, skewed(new(time.Duration)))
	_, err := claims.Take(t.Context(), d, forOneSecond)
	require.NoError(t, err, "brings the server's clock")
	p.sent = nil
	var got, want []any
	for _, ttl := range []time.Duration{time.Second, time.Minute, time.Minute, time.Second} {
		l, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: ttl})
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context(), 2*ttl))
		want = append(want, (ttl + script.Keep).Milliseconds(), (2*ttl + script.Keep).Milliseconds())
	}
	for _, c := range p.sent {
		got = append(got, expiresOf(c))
	}
	assert.Equal(t, want, got)
}

// scanOf is a server whose SCAN takes as many steps as there are keys.
func scanOf(keys ...[]string) Scan {
	return func(_ context.Context, cursor uint64, match string) ([]string, uint64, error) {
		if match != "{locker:*}" {
			return nil, 0, errors.New("another pattern")
		}
		return keys[cursor], (cursor + 1) % uint64(len(keys)), nil
	}
}

// A page is a step, and the last one is that of the last server.
func TestList_goesThroughAllServers(t *testing.T) {
	d, p := answering(t, replies([]any{"a", "", int64(1), "7", int64(-1), []any{}, []any{}}, nil))
	p.scans = func() ([]Scan, error) {
		return []Scan{
			scanOf([]string{"{locker:a}", "{locker:a}", "{locker:%mark}"}, nil, []string{"{locker:b}"}),
			scanOf([]string{"{locker:c}"}),
			scanOf(nil),
		}, nil
	}
	next := d.List("locker:")
	var pages [][]string
	for {
		page, err := next(t.Context())
		require.NoError(t, err)
		pages = append(pages, page.Names)
		if page.Last {
			break
		}
	}
	assert.Equal(t, [][]string{{"locker:a"}, nil, {"locker:b"}, {"locker:c"}, nil}, pages)
	assert.Equal(t, []*script.Script{script.Inspect, script.Inspect, script.Inspect}, p.scripts())
}

func TestList_ofOtherReplies(t *testing.T) {
	for name, c := range map[string]struct {
		reply any
		err   error
		want  string // of the error; empty: none
	}{
		"a key of another type": {nil, errors.New("WRONGTYPE Operation against a key holding the wrong kind of value"), ""},
		"no right":              {nil, errors.New("NOPERM this user has no permissions"), "NOPERM"},
		"nonsense":              {int64(7), nil, "unexpected reply to the inspect script"},
		"released":              {[]any{"", "", int64(1), "7", int64(-1), []any{}, []any{}}, nil, ""},
		"expired":               {[]any{"a", "", int64(0), "7", int64(-1), []any{}, []any{}}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, p := answering(t, replies(c.reply, c.err))
			p.scans = func() ([]Scan, error) { return []Scan{scanOf([]string{"{locker:a}"})}, nil }
			page, err := d.List("locker:")(t.Context())
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, driver.Page{Last: true}, page)
		})
	}
}
