package redisscript

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
	"github.com/go-locker/locker/internal/redisscript/wait"
	"github.com/go-locker/locker/internal/test/claims"
)

// fakeRunner answers as it is told.
type fakeRunner struct {
	answer  func(s *script.Script, args []any) (any, error)
	notRun  bool
	sent    [][]any
	batches []int // how many calls have shared each
}

func (r *fakeRunner) Run(_ context.Context, calls []script.Call, replies []script.Reply) {
	r.batches = append(r.batches, len(calls))
	for i, c := range calls {
		r.sent = append(r.sent, slices.Clone(c.Args))
		v, err := r.answer(c.Script, c.Args)
		replies[i] = script.Reply{Value: v, Err: err, MayHaveRun: err != nil && !r.notRun}
	}
}

func (r *fakeRunner) Locate(context.Context, string) (wait.Publisher, error) {
	return wait.Publisher{}, wait.ErrNoSubscriptions
}

func (r *fakeRunner) AtOnce() int { return send.MostAtOnce }

func (r *fakeRunner) HeedsDeadlines() bool { return false }

func (r *fakeRunner) Sharded() bool { return false }

func (r *fakeRunner) Scans(context.Context) ([]Scan, error) { return nil, nil }

var forOneSecond = driver.Request{Name: "x", TTL: time.Second}

// parseDue reads when a request is due, and its number, as the script does.
func parseDue(arg any) (by script.Due, number int64) {
	text := arg.(string)
	if _, err := fmt.Sscanf(text[16:32]+" "+text[32:], "%d %d/%d:", &by.Whole, &number, &by.Rest); err != nil {
		panic(err)
	}
	return by, number
}

func nowMicro() int64 { return time.Now().UnixMicro() }

func TestAcquire_anUnknownOutcomeReturnsTheLeaseToCleanUp(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		reply     any
		err       error
		notRun    bool
		wantLease bool
	}{
		"lost reply": {nil, boom, false, true},
		"not run":    {nil, boom, true, false},
		"nonsense":   {[]any{int64(1), int64(2), int64(3)}, nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDriver(&fakeRunner{answer: func(*script.Script, []any) (any, error) { return c.reply, c.err }, notRun: c.notRun})
			for _, wake := range []func(){nil, func() {}} {
				claim := d.Claim(driver.Request{Name: "x", TTL: time.Second, Wake: wake})
				_, err := claim.Ask(t.Context())
				require.Error(t, err)
				require.NotErrorIs(t, err, locker.ErrHeld)
				assert.Equal(t, c.wantLease, mayBeThere(claim))
				if c.err != nil {
					assert.ErrorIs(t, err, c.err)
				}
			}
		})
	}
}

// mayBeThere reports whether what a Take returned is to be released.
func mayBeThere(l driver.Lease) bool { return l.(*claim).there }

func TestAcquire_everyAttemptHasAnOwnerOfItsOwn(t *testing.T) {
	r := &fakeRunner{answer: func(*script.Script, []any) (any, error) {
		return []any{int64(0), int64(5), nowMicro(), int64(-1), int64(0), int64(0), "", ""}, nil
	}}
	d := NewDriver(r)
	seen := map[any]bool{}
	for range 1000 {
		_, err := claims.Take(t.Context(), d, forOneSecond)
		require.ErrorIs(t, err, locker.ErrHeld)
	}
	for _, args := range r.sent {
		owner := argument(script.Take, args, "owner").(string)
		assert.GreaterOrEqual(t, len(owner), 26, "128 bits in base 32")
		assert.False(t, seen[owner])
		seen[owner] = true
	}
}

func TestAcquire_lateByAWrongEstimateIsTriedOnceMore(t *testing.T) {
	ahead := int64(0)
	r := &fakeRunner{}
	r.answer = func(_ *script.Script, args []any) (any, error) {
		now := nowMicro() + ahead
		if by, _ := parseDue(argument(script.Take, args, "due")); now > by.Whole+by.Rest {
			return []any{int64(script.Late), now}, nil
		}
		return []any{int64(script.Granted), now, now, now}, nil
	}
	d := NewDriver(r)
	for _, jump := range []time.Duration{0, time.Hour, 24 * time.Hour, -time.Hour, 0} {
		ahead = jump.Microseconds()
		lease, err := claims.Take(t.Context(), d, forOneSecond)
		require.NoError(t, err, "the server's clock jumped to %v", jump)
		assert.NotZero(t, lease.Token())
	}
	r.answer = func(*script.Script, []any) (any, error) { return []any{int64(script.Late), nowMicro()}, nil }
	sent := len(r.sent)
	lease, err := claims.Take(t.Context(), d, forOneSecond)
	require.Error(t, err)
	assert.False(t, mayBeThere(lease))
	require.NotErrorIs(t, err, locker.ErrHeld)
	assert.Len(t, r.sent, sent+2, "not endless")
}

// Nobody waits for a take after its context's deadline: that of a quorum's node is much shorter than half a TTL.
func TestAcquire_isNotToBeDoneAfterItsDeadline(t *testing.T) {
	r := &fakeRunner{answer: func(*script.Script, []any) (any, error) {
		now := nowMicro()
		return []any{int64(script.Granted), now, now, now}, nil
	}}
	d := NewDriver(r)
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
			by, _ := parseDue(argument(script.Take, r.sent[len(r.sent)-1], "due"))
			notAfter := by.Whole + by.Rest
			assert.InDelta(t, nowMicro()+c.patience.Microseconds(), notAfter, float64(10*time.Second.Microseconds()), "%s, %v", what, c.deadline)
		}
	}
}

// By an estimate that is wrong the script takes off what its request took, and more. If that cannot be made good, its owner counts no more than
// there is.
func TestAcquire_countsWhatTheScriptHasLeft(t *testing.T) {
	long := driver.Request{Name: "x", TTL: time.Hour}
	jumped := time.Duration(0)
	var left time.Duration
	r := &fakeRunner{answer: func(s *script.Script, args []any) (any, error) {
		if s == script.Extend {
			return nil, io.ErrUnexpectedEOF // else the hold would be made to last
		}
		by, _ := parseDue(argument(script.Take, args, "due"))
		now := nowMicro() + jumped.Microseconds()
		if now > by.Whole+by.Rest {
			return []any{int64(script.Late), now}, nil
		}
		left = long.TTL - by.Late(now)
		return []any{int64(script.Granted), now, now, now}, nil
	}}
	d := NewDriver(r)
	for _, want := range []time.Duration{
		long.TTL, // the first brings the server's clock
		long.TTL*4/5 + long.TTL/100 + 2*time.Millisecond, // which has jumped since
		long.TTL, // and is known again
	} {
		lease, err := claims.Take(t.Context(), d, long)
		require.NoError(t, err)
		assert.InDelta(t, want, left, float64(20*time.Second), "at the server")
		assert.LessOrEqual(t, lease.Validity(), left)
		assert.Greater(t, lease.Validity(), left-20*time.Second)
		jumped = long.TTL / 5
	}
}

// Clocks drift apart while nobody looks.
func TestAcquire_anOldEstimateIsRenewedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := skewed(new(time.Duration))
		d := NewDriver(r)
		defer func() { require.NoError(t, d.Close(noClient)) }()
		for _, c := range []struct {
			idle time.Duration
			want int
		}{{0, 2}, {time.Minute, 1}, {2 * time.Minute, 2}} { // TTL 1 s
			time.Sleep(c.idle)
			r.sent = nil
			_, err := claims.Take(t.Context(), d, forOneSecond)
			require.NoError(t, err)
			assert.Len(t, r.sent, c.want, "requests after %v", c.idle)
		}
	})
}

// skewed is a server on which all is free, and whose clock is ahead of ours.
func skewed(ahead *time.Duration) *fakeRunner {
	return &fakeRunner{answer: func(s *script.Script, args []any) (any, error) {
		if s == script.Extend {
			return int64(1), nil
		}
		now := nowMicro() + ahead.Microseconds()
		if by, _ := parseDue(argument(script.Take, args, "due")); now > by.Whole+by.Rest {
			return []any{int64(script.Late), now}, nil
		}
		return []any{int64(script.Granted), now, now, now}, nil
	}}
}

func TestLease_validityIsFromBeforeTheRequestAndNeverMovesBack(t *testing.T) {
	delay := 50 * time.Millisecond
	r := &fakeRunner{answer: func(s *script.Script, _ []any) (any, error) {
		time.Sleep(delay)
		if s == script.Take {
			return []any{int64(script.Granted), int64(7), nowMicro(), int64(0)}, nil
		}
		return int64(1), nil
	}}
	d := NewDriver(r)
	lease, err := claims.Take(t.Context(), d, forOneSecond)
	require.NoError(t, err)
	assert.LessOrEqual(t, lease.Validity(), forOneSecond.TTL-delay)
	require.NoError(t, lease.Extend(t.Context(), forOneSecond.TTL))
	assert.LessOrEqual(t, lease.Validity(), forOneSecond.TTL-delay)
	delay = 0
	before := lease.Validity()
	require.NoError(t, lease.Extend(t.Context(), forOneSecond.TTL/2))
	assert.InDelta(t, before, lease.Validity(), float64(20*time.Millisecond), "a shorter extension takes nothing away")
	require.Equal(t, []error{nil}, d.ExtendAll(t.Context(), []driver.Lease{lease}, time.Minute))
	assert.Greater(t, lease.Validity(), 59*time.Second)
}

func TestLease_otherRepliesAreNoSuccess(t *testing.T) {
	var reply any
	r := &fakeRunner{answer: func(s *script.Script, _ []any) (any, error) {
		if s == script.Take {
			return []any{int64(script.Granted), int64(7), nowMicro(), int64(0)}, nil
		}
		return reply, nil
	}}
	d := NewDriver(r)
	lease, err := claims.Take(t.Context(), d, forOneSecond)
	require.NoError(t, err)
	for _, reply = range []any{nil, "1", int64(0), int64(2), []any{int64(1)}, true} {
		what := fmt.Sprintf("%T %v", reply, reply)
		require.Error(t, lease.Extend(t.Context(), time.Second), what)
		require.Error(t, lease.Release(t.Context()), what)
		require.Error(t, lease.(quorum.Candidate).Raise(t.Context(), 8), what)
		require.Error(t, d.ExtendAll(t.Context(), []driver.Lease{lease}, time.Second)[0], what)
	}
	assert.EqualValues(t, 7, lease.Token())
	reply = int64(1) // what the server says to a release that is sent again
	require.ErrorIs(t, lease.Release(t.Context()), locker.ErrLost, "it said once that the hold had ended")
}

// Locks of one Client may have a TTL each: what was sent for the one before is not sent for another.
func TestDriver_sendsEachLocksOwnExpiry(t *testing.T) {
	var got []any
	r := &fakeRunner{answer: func(s *script.Script, args []any) (any, error) {
		got = append(got, argument(s, args, "expires"))
		if s == script.Take {
			return strconv.FormatInt(nowMicro(), 10), nil
		}
		return int64(1), nil
	}}
	d := NewDriver(r)
	defer func() { require.NoError(t, d.Close(noClient)) }()
	var want []any
	for _, ttl := range []time.Duration{time.Second, time.Minute, time.Minute, time.Second} {
		l, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: ttl})
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context(), 2*ttl))
		want = append(want, ttl.Milliseconds()+script.Keep.Milliseconds(), 2*ttl.Milliseconds()+script.Keep.Milliseconds())
	}
	assert.Equal(t, want, got)
}

// Two nodes of a Cluster, whose clocks differ a little, as NTP leaves them: nothing is late, and every hold lasts one TTL.
func TestAcquire_nodesWhoseClocksDifferALittleShortenNoHold(t *testing.T) {
	skew := time.Second
	d := NewDriver(skewed(&skew))
	ten := driver.Request{Name: "x", TTL: 10 * time.Second}
	for i := range 6 {
		skew = time.Second - skew
		l, err := claims.Take(t.Context(), d, ten)
		require.NoError(t, err)
		assert.Greater(t, l.Validity(), ten.TTL-ten.TTL/100-50*time.Millisecond, "take %d", i)
	}
}
