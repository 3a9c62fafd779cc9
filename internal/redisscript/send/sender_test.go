package send

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/internal/redisscript/script"
)

// gated is a Runner whose batches take until the test lets them go on.
type gated struct {
	apart   bool
	heeds   bool          // deadlines, and no cancellation
	gate    chan struct{} // a value lets one batch go on; closed: all
	mu      sync.Mutex
	batches []int           // how many calls have shared each
	latest  context.Context // of a batch
	silent  atomic.Int32    // how often it was told so
}

func (g *gated) AtOnce() int {
	if g.apart {
		return 0
	}
	return MostAtOnce
}

func (g *gated) HeedsDeadlines() bool { return g.heeds }

func (g *gated) Silent() { g.silent.Add(1) }

func (g *gated) Run(ctx context.Context, calls []script.Call, replies []script.Reply) {
	g.mu.Lock()
	g.batches = append(g.batches, len(calls))
	g.latest = ctx
	g.mu.Unlock()
	var over <-chan time.Time
	if until, ok := ctx.Deadline(); ok && g.heeds {
		over = time.After(time.Until(until))
	}
	select {
	case <-g.gate:
	case <-over:
		replies[0] = script.Reply{Err: os.ErrDeadlineExceeded, MayHaveRun: true}
		return
	}
	for i := range calls {
		replies[i].Value = i
	}
}

// test runs f with a Sender through a gated Runner, in a bubble. Whatever is in flight at the end is
// answered, and Close returns.
func test(t *testing.T, g *gated, f func(t *testing.T, g *gated, s *Sender)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g.gate = make(chan struct{})
		s := New(g)
		defer s.Close()
		defer func() {
			select {
			case <-g.gate:
			default:
				close(g.gate)
			}
		}()
		f(t, g, s)
	})
}

// bothKinds runs f as test does, for requests that workers make, and for counted ones.
func bothKinds(t *testing.T, f func(t *testing.T, g *gated, s *Sender, kind ...func(*Request))) {
	t.Helper()
	for how, kind := range map[string][]func(*Request){"by workers": nil, "counted": {counted}} {
		t.Run(how, func(t *testing.T) {
			test(t, &gated{}, func(t *testing.T, g *gated, s *Sender) { t.Helper(); f(t, g, s, kind...) })
		})
	}
}

// wantSizes fails unless batches of so many calls have been sent.
func (g *gated) wantSizes(t *testing.T, want ...int) {
	t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Equal(t, want, g.batches)
}

// requests has n goroutines make a request of one call each, or of more calls. What they come to is
// sent to the result.
func requests(ctx context.Context, s *Sender, n int, timeout time.Duration, more ...func(*Request)) <-chan error {
	done := make(chan error, n)
	for range n {
		go func() {
			r := s.Request(script.Take, nil, "owner")
			for _, change := range more {
				change(r)
			}
			reply, _ := s.Send(ctx, timeout, r)
			done <- reply.Err
		}()
	}
	return done
}

func counted(r *Request) { r.Counted = true }

func wantNoErrors(t *testing.T, all ...<-chan error) {
	t.Helper()
	for _, done := range all {
		for range cap(done) {
			require.NoError(t, <-done)
		}
	}
}

func TestSender_whoComesMeanwhileGoesWithTheNext(t *testing.T) {
	const n = maxCalls + 10
	bothKinds(t, func(t *testing.T, g *gated, s *Sender, kind ...func(*Request)) {
		first := requests(t.Context(), s, MostAtOnce, time.Minute, kind...)
		synctest.Wait()
		others := requests(t.Context(), s, n, time.Minute, kind...)
		g.wantSizes(t, 1, 1)
		g.gate <- struct{}{}
		require.NoError(t, <-first, "who has its answer does not wait for the others")
		g.wantSizes(t, 1, 1, maxCalls)
		g.gate <- struct{}{}
		g.wantSizes(t, 1, 1, maxCalls, n-maxCalls)
		close(g.gate)
		require.NoError(t, <-first)
		wantNoErrors(t, others)
	})
}

// A renewal of many is one request, which does not take others along.
func TestSender_aLargeRequestGoesByItself(t *testing.T) {
	test(t, &gated{}, func(t *testing.T, g *gated, s *Sender) {
		first := requests(t.Context(), s, MostAtOnce, time.Minute)
		synctest.Wait()
		others := requests(t.Context(), s, 2, time.Minute)
		synctest.Wait()
		replies := make([]script.Reply, 2*maxCalls)
		large := requests(t.Context(), s, 1, time.Minute, func(r *Request) { r.calls, r.replies = make([]script.Call, len(replies)), replies })
		synctest.Wait()
		more := requests(t.Context(), s, 2, time.Minute)
		synctest.Wait()
		close(g.gate)
		wantNoErrors(t, first, others, large, more)
		assert.Equal(t, len(replies)-1, replies[len(replies)-1].Value, "each call has its own reply")
		assert.ElementsMatch(t, []int{1, 1, 2, len(replies), 2}, g.batches)
	})
}

// A server of several is not to hold up what is for another.
func TestSender_eachByItselfWhereThereAreSeveralServers(t *testing.T) {
	test(t, &gated{apart: true}, func(t *testing.T, g *gated, s *Sender) {
		done := requests(t.Context(), s, 50, time.Minute)
		g.wantSizes(t, slices.Repeat([]int{1}, 50)...)
		close(g.gate)
		wantNoErrors(t, done)
	})
}

// Batches that hang hold up those who come just then, for a moment. Who comes later is sent at
// once, also if it cannot wait for a moment; and none that hung counts when it is answered.
func TestSender_aBatchThatHangsHoldsNobodyUp(t *testing.T) {
	bothKinds(t, func(t *testing.T, g *gated, s *Sender, kind ...func(*Request)) {
		hung := requests(t.Context(), s, MostAtOnce, time.Hour, kind...)
		synctest.Wait()
		together := requests(t.Context(), s, 2, time.Hour)
		g.wantSizes(t, 1, 1)
		time.Sleep(Overdue)
		want := []int{1, 1, 2}
		g.wantSizes(t, want...)
		for range 17 {
			ctx, cancel := context.WithTimeout(t.Context(), Overdue/2)
			done := requests(ctx, s, 1, time.Hour, kind...)
			time.Sleep(Overdue)
			want = append(want, 1)
			g.wantSizes(t, want...)
			if kind == nil {
				require.ErrorIs(t, <-done, context.DeadlineExceeded, "after it was sent")
			}
			cancel()
		}
		close(g.gate)
		wantNoErrors(t, hung, together)
		synctest.Wait()
		require.Zero(t, s.inFlight)
		require.Empty(t, s.batches)
	})
}

// A request is waited for until its context ends, or its time is over. It goes on meanwhile, and its
// context ends if nobody waits for its batch.
func TestSender_aRequestEndsInItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration // of its context; 0: none
		cancel  time.Duration // after which that is cancelled; 0: never
		own     time.Duration // its time
		after   time.Duration
		err     error
	}{
		"by a cancel":           {cancel: time.Second, own: time.Hour, after: time.Second, err: context.Canceled},
		"by a deadline":         {timeout: 3 * time.Second, own: time.Hour, after: 3 * time.Second, err: context.DeadlineExceeded},
		"by a deadline at once": {timeout: interval / 2, own: time.Hour, after: interval / 2, err: context.DeadlineExceeded},
		"by its time":           {own: time.Second + interval/2, after: time.Second + interval/2, err: ErrNoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, &gated{}, func(t *testing.T, g *gated, s *Sender) {
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(c.timeout, 24*time.Hour))
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				began := time.Now()
				reply, answered := s.Send(ctx, c.own, s.Request(script.Take, nil, "owner"))
				late := 3 * moment
				if c.cancel > 0 {
					late += interval
				}
				assert.LessOrEqual(t, time.Since(began), c.after+late)
				require.ErrorIs(t, reply.Err, c.err)
				require.False(t, answered)
				require.True(t, reply.MayHaveRun)
				assert.Equal(t, c.cancel == 0 && c.after >= silence, g.silent.Load() == 1)
				synctest.Wait()
				require.Error(t, g.latest.Err(), "nobody waits")
				if c.own == time.Hour {
					_, answered = s.Send(ctx, c.own, s.Request(script.Take, nil, "owner"))
					require.False(t, answered)
					g.wantSizes(t, 1) // nothing is sent for who waits no more
				}
			})
		})
	}
}

// One that was not sent is taken back.
func TestSender_whatIsGivenUpInTimeIsNotSent(t *testing.T) {
	bothKinds(t, func(t *testing.T, g *gated, s *Sender, kind ...func(*Request)) {
		first := requests(t.Context(), s, MostAtOnce, time.Minute)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		done := requests(ctx, s, 1, time.Minute, kind...)
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		close(g.gate)
		wantNoErrors(t, first)
		g.wantSizes(t, 1, 1)
	})
}

// One that is counted is in flight until the client library returns, whatever its context does.
func TestSender_aCountedRequestEndsWithItsReply(t *testing.T) {
	test(t, &gated{}, func(t *testing.T, g *gated, s *Sender) {
		hung := requests(t.Context(), s, MostAtOnce, time.Hour)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		sent, stays := requests(ctx, s, 1, time.Minute, counted), requests(t.Context(), s, 1, time.Minute, counted)
		time.Sleep(Overdue)
		g.wantSizes(t, 1, 1, 2)
		cancel()
		time.Sleep(2 * interval)
		require.Empty(t, sent, "before it is answered")
		require.NoError(t, g.latest.Err(), "the other one is waited for")
		close(g.gate)
		wantNoErrors(t, sent, stays, hung)
	})
}

// A request that a tick has seen may be with that tick still, when its caller is done with it.
func TestSender_aRequestThatATickHasSeenIsNotUsedAgain(t *testing.T) {
	test(t, &gated{}, func(t *testing.T, g *gated, s *Sender) {
		for _, seen := range []bool{false, true} {
			var r *Request
			done := requests(t.Context(), s, 1, time.Minute, func(made *Request) { r = made })
			synctest.Wait()
			if seen {
				time.Sleep(2 * interval)
			}
			g.gate <- struct{}{}
			wantNoErrors(t, done)
			require.Equal(t, seen, r.ctx != nil)
		}
	})
}

// The client library may be the first to see that the time of a request is over.
func TestSender_aClientLibrarysTimeoutIsThatOfTheRequest(t *testing.T) {
	test(t, &gated{heeds: true}, func(t *testing.T, g *gated, s *Sender) {
		require.ErrorIs(t, <-requests(t.Context(), s, 1, moment), ErrNoAnswer)
		require.Zero(t, g.silent.Load(), "after a moment")
		require.ErrorIs(t, <-requests(t.Context(), s, 1, silence), ErrNoAnswer)
		require.EqualValues(t, 1, g.silent.Load())
	})
}

// A request that was given up can be waited for. What is left of an earlier one that was answered
// does not stand for it.
func TestRequest_awaitsWhatWasGivenUp(t *testing.T) {
	test(t, &gated{}, func(t *testing.T, g *gated, s *Sender) {
		for range 10 {
			done := requests(t.Context(), s, 1, time.Minute)
			g.gate <- struct{}{}
			wantNoErrors(t, done)
			r := s.Request(script.Take, nil, "owner")
			reply, answered := s.Send(t.Context(), time.Second, r)
			require.False(t, answered)
			require.True(t, reply.MayHaveRun)
			time.Sleep(time.Minute)
			require.False(t, r.Ended())
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			require.ErrorIs(t, r.Await(soon), context.DeadlineExceeded)
			cancel()
			var waits sync.WaitGroup
			for range 3 {
				waits.Go(func() { assert.NoError(t, r.Await(t.Context())) })
			}
			g.gate <- struct{}{}
			waits.Wait()
			require.True(t, r.Ended())
			require.Equal(t, script.Reply{Value: 0}, r.Reply())
		}
	})
}

type contextKey struct{}

// A client library finds in its context what the caller has put there, unless several share the batch.
func TestSender_aBatchHasTheValuesOfItsCaller(t *testing.T) {
	test(t, &gated{}, func(t *testing.T, g *gated, s *Sender) {
		ctx := context.WithValue(t.Context(), contextKey{}, "the caller's")
		for range MostAtOnce {
			requests(ctx, s, 1, time.Minute)
			synctest.Wait()
			assert.Equal(t, "the caller's", g.latest.Value(contextKey{}))
		}
		below, cancel := context.WithTimeout(g.latest, time.Hour) // as client libraries do
		defer cancel()
		requests(ctx, s, 2, time.Minute)
		synctest.Wait()
		close(g.gate)
		synctest.Wait()
		assert.Nil(t, g.latest.Value(contextKey{}))
		require.ErrorIs(t, below.Err(), context.Canceled, "with the batch")
	})
}

// A batch goes on while one of its requests is wanted, and not for longer: its connection may be needed.
func TestSender_aBatchEndsWhenNobodyWaits(t *testing.T) {
	test(t, &gated{}, func(t *testing.T, g *gated, s *Sender) {
		requests(t.Context(), s, MostAtOnce, time.Minute)
		synctest.Wait()
		one, cancelOne := context.WithCancel(t.Context())
		two, cancelTwo := context.WithCancel(t.Context())
		requests(one, s, 1, time.Minute)
		requests(two, s, 1, time.Hour)
		synctest.Wait()
		g.gate <- struct{}{}
		g.wantSizes(t, 1, 1, 2)
		deadline, ok := g.latest.Deadline()
		assert.True(t, ok)
		assert.Equal(t, time.Hour, time.Until(deadline), "the longest")
		cancelOne()
		time.Sleep(2 * interval)
		synctest.Wait()
		require.NoError(t, g.latest.Err())
		cancelTwo()
		time.Sleep(interval)
		synctest.Wait()
		require.ErrorIs(t, g.latest.Err(), context.Canceled)
	})
}

// core is a context as the core's.
type core struct {
	context.Context

	cancellable bool
}

func (c core) Cancellable() bool { return c.cancellable }

// A caller makes its request by itself if nothing but the deadline ends its context, and no other
// request is in flight.
func TestSender_aCallerMakesItsRequest(t *testing.T) {
	test(t, &gated{heeds: true}, func(t *testing.T, g *gated, s *Sender) {
		byCaller := func() bool { synctest.Wait(); return g.latest.(*batch).own }
		one := requests(core{Context: t.Context()}, s, 1, time.Minute)
		require.True(t, byCaller())
		second := requests(core{Context: t.Context()}, s, 1, time.Minute)
		require.False(t, byCaller(), "another is in flight")
		third := requests(core{Context: t.Context()}, s, 1, time.Minute)
		for range 3 {
			g.gate <- struct{}{}
		}
		wantNoErrors(t, one, second, third)
		g.wantSizes(t, 1, 1, 1)
		require.Error(t, g.latest.Err(), "its context has ended")

		ctx, cancel := context.WithCancel(t.Context())
		one = requests(core{ctx, true}, s, 1, time.Minute)
		require.False(t, byCaller())
		cancel()
		require.ErrorIs(t, <-one, context.Canceled, "at once")
		g.gate <- struct{}{}
		synctest.Wait()

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		one = requests(core{Context: ctx}, s, 1, time.Minute)
		require.True(t, byCaller())
		require.ErrorIs(t, <-one, context.DeadlineExceeded)
		assert.LessOrEqual(t, time.Since(began), time.Second+interval)
	})
}

// Close returns when the requests in flight are answered, and those that wait for them.
func TestSender_closeWaits(t *testing.T) {
	bothKinds(t, func(t *testing.T, g *gated, s *Sender, kind ...func(*Request)) {
		asked := requests(t.Context(), s, MostAtOnce+2, time.Minute, kind...)
		synctest.Wait()
		closed := make(chan struct{})
		go func() { defer close(closed); s.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("it has returned")
		default:
		}
		require.ErrorIs(t, <-requests(t.Context(), s, 1, time.Minute, kind...), driver.ErrClosed)
		require.ErrorIs(t, s.Aside(t.Context(), func(context.Context) error { return nil }), driver.ErrClosed)
		close(g.gate)
		<-closed
		synctest.Wait()
		require.Len(t, asked, MostAtOnce+2)
		wantNoErrors(t, asked)
	})
}

// Its error is the caller's. TestClaim_everyCallEndsWithItsContext has one that ignores contexts.
func TestAside(t *testing.T) {
	test(t, &gated{}, func(t *testing.T, _ *gated, s *Sender) {
		boom := errors.New("boom")
		require.ErrorIs(t, s.Aside(t.Context(), func(context.Context) error { return boom }), boom)
	})
}

type ender struct{ n atomic.Int32 }

func (e *ender) End() { e.n.Add(1) }

// What a client library is given is a context in all respects.
func TestBatch_isAContext(t *testing.T) {
	for name, want := range map[string]error{"cancelled": context.Canceled, "timed out": context.DeadlineExceeded, "answered": context.Canceled} {
		t.Run(name, func(t *testing.T) {
			test(t, &gated{}, func(t *testing.T, g *gated, s *Sender) {
				caller, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := requests(caller, s, 1, time.Second)
				synctest.Wait()
				ctx := g.latest
				deadline, ok := ctx.Deadline()
				require.True(t, ok)
				assert.Equal(t, time.Second, time.Until(deadline))
				var ran atomic.Int32
				derived, release := context.WithCancel(ctx)
				defer release()
				context.AfterFunc(ctx, func() { ran.Add(1) })
				var ends ender
				AtEnd(ctx, &ends).Stop()
				ending := AtEnd(ctx, &ends)
				stopped := context.AfterFunc(ctx, func() { t.Error("it was stopped") })
				assert.True(t, stopped())
				assert.False(t, stopped())
				require.NoError(t, ctx.Err())
				select {
				case <-ctx.Done():
					t.Error("it has ended, and Err is nil")
				default:
				}

				switch name {
				case "cancelled":
					cancel()
				case "timed out":
					time.Sleep(time.Until(deadline) + 2*moment)
				default:
					close(g.gate)
				}
				<-ctx.Done()
				synctest.Wait()
				require.ErrorIs(t, ctx.Err(), want)
				assert.Equal(t, want, derived.Err())
				assert.EqualValues(t, 1, ran.Load())
				ending.Stop()
				assert.EqualValues(t, 1, ends.n.Load())
				AtEnd(ctx, &ends).Stop()
				assert.EqualValues(t, 2, ends.n.Load(), "it has ended before")
				context.AfterFunc(ctx, func() { ran.Add(1) })
				synctest.Wait()
				assert.EqualValues(t, 2, ran.Load())
				time.Sleep(time.Minute)
				require.ErrorIs(t, ctx.Err(), want, "it stays")
				if err := <-done; name == "answered" {
					require.NoError(t, err)
				}
			})
		})
	}
}

func TestExplain(t *testing.T) {
	require.NoError(t, explain(nil, false))
	for want, err := range map[string]error{
		"the server runs no scripts: ERR unknown command 'EVALSHA' (if it is a Sentinel, the URL needs the parameter master_name)": errors.New("ERR unknown command 'EVALSHA', with args beginning with: 'a' 'b'"),
		"no sentinel watches a primary of the name in master_name":                                                                 errors.New("redis: all sentinels specified in configuration are unreachable: redis: nil"),
		"the server has closed the connection (as a port for TLS does, if the URL is not one for TLS)":                             io.EOF,
		"dial: tls: no TLS (the URL is one for TLS, and the port speaks something else)":                                           fmt.Errorf("dial: %w", tls.RecordHeaderError{Msg: "no TLS"}),
		"ERR unknown command 'WAIT', with args":                                                                                    errors.New("ERR unknown command 'WAIT', with args"),
		"LOADING Redis is loading the dataset in memory":                                                                           errors.New("LOADING Redis is loading the dataset in memory"),
		"reading: EOF": fmt.Errorf("reading: %w", io.EOF),
	} {
		got := explain(err, false)
		require.EqualError(t, got, want)
		require.ErrorIs(t, got, err)
	}
	for _, text := range []string{"ASK 1 h:1", "MOVED 1 h:1"} {
		assert.True(t, noanswer.Outage(explain(errors.New(text), true)), "%s while a slot of a Cluster moves", text)
		assert.False(t, noanswer.Outage(explain(errors.New(text), false)), "%s to a client of one server is final", text)
	}
}
