package election_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/election"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/locktest"
	"github.com/go-locker/locker/memory"
)

const (
	reserve = 2 * time.Second
	ttl     = 30 * time.Second // the default
	drift   = 302 * time.Millisecond
	life    = ttl - drift // of a hold that is not renewed
	rest    = time.Second // of a candidate that has led
)

// candidate is one process of a test.
type candidate struct {
	*election.Election
	*locktest.Client
	stop func() error // ends Lead, and returns its error
}

// campaign has a process be a candidate. With no lead it leads until its context ends.
func campaign(t *testing.T, id string, lead func(context.Context, uint64), opts ...locker.Option) *candidate {
	t.Helper()
	c := locktest.New(t, append(opts, locker.WithMetadata(id))...)
	e := election.New(c.Client, "leader")
	if lead == nil {
		lead = func(ctx context.Context, _ uint64) { <-ctx.Done() }
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := testwait.Go(func() error { return e.Lead(ctx, reserve, lead) })
	stop := func() error { cancel(); return <-done }
	return &candidate{e, c, stop}
}

// wantLeader fails unless one, and no other, leads.
func wantLeader(t *testing.T, one *candidate, others ...*candidate) {
	t.Helper()
	synctest.Wait()
	assert.True(t, one.IsLeader())
	assert.NotZero(t, one.Term())
	for _, other := range others {
		assert.False(t, other.IsLeader())
		assert.Zero(t, other.Term())
	}
}

func TestLead_whoIsNotRenewedHasTheReserveToStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leaders, terms atomic.Int32
		var newest atomic.Uint64
		lead := func(ctx context.Context, term uint64) {
			assert.EqualValues(t, 1, leaders.Add(1), "another leads")
			assert.Less(t, newest.Swap(term), term, "terms rise")
			terms.Add(1)
			began := time.Now()
			<-ctx.Done()
			if terms.Load() < 50 {
				assert.Equal(t, life-reserve, time.Since(began))
			}
			time.Sleep(reserve - time.Millisecond) // it does not stop at once
			leaders.Add(-1)
		}
		var all []*candidate
		for range 3 {
			all = append(all, campaign(t, "", lead, locker.WithoutRenewal()))
		}
		testwait.Patience(time.Hour).Until(t, "all have led again and again", func() bool { return terms.Load() >= 50 })
		for _, c := range all {
			require.NoError(t, c.stop(), "the term is given back before it expires")
		}
	})
}

func TestLead_whoStopsLeavesTheLeadToTheNextAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := campaign(t, "", nil)
		synctest.Wait()
		b := campaign(t, "", nil)
		synctest.Wait()
		c := campaign(t, "", nil)
		wantLeader(t, a, b, c)
		began := time.Now()
		require.NoError(t, b.stop(), "it was waiting")
		require.NoError(t, a.stop())
		wantLeader(t, c, a, b)
		require.NoError(t, c.stop())
		assert.Equal(t, began, time.Now(), "nobody waited")
	})
}

// A leader that is cut off stops by its own clock, and one that does not heed its context does not
// lead either.
func TestIsLeader_isFalseBeforeAnotherLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := make(chan struct{})
		a := campaign(t, "", func(context.Context, uint64) { <-woken })
		synctest.Wait()
		b := campaign(t, "", nil)
		wantLeader(t, a, b)
		a.Down()
		began := time.Now()
		for a.IsLeader() {
			time.Sleep(time.Millisecond)
		}
		assert.InDelta(t, (life - reserve).Seconds(), time.Since(began).Seconds(), 0.002)
		assert.False(t, b.IsLeader())
		for !b.IsLeader() {
			time.Sleep(time.Millisecond)
		}
		assert.InDelta(t, ttl.Seconds(), time.Since(began).Seconds(), 0.002, "within a TTL another leads")
		a.Up()
		close(woken)
		synctest.Wait()
		require.NoError(t, a.stop(), "it is a candidate again, or rests")
		require.NoError(t, b.stop())
	})
}

// When the next term of a candidate that has no rival begins.
func TestLead_isACandidateAgain(t *testing.T) {
	after := func(d time.Duration, then func(ctx context.Context, p *candidate)) func(context.Context, *candidate) {
		return func(ctx context.Context, p *candidate) { time.Sleep(d); then(ctx, p) }
	}
	returns := func(context.Context, *candidate) {}
	untilTold := func(ctx context.Context, _ *candidate) { <-ctx.Done() }
	resigns := func(ctx context.Context, p *candidate) { p.Resign(); <-ctx.Done() }
	revoked := func(ctx context.Context, p *candidate) { p.Lose("leader"); <-ctx.Done() }
	for name, c := range map[string]struct {
		reserve time.Duration
		lead    func(context.Context, *candidate)
		next    time.Duration // from the beginning of the first term
	}{
		"a second after it gave up":                       {reserve, after(3*time.Second, returns), 3*time.Second + rest},
		"a second after it gave up at once":               {reserve, returns, rest},
		"a second after it resigned":                      {reserve, after(3*time.Second, resigns), 3*time.Second + rest},
		"a second after the reserve was left":             {reserve, untilTold, life - reserve + rest},
		"a second after its hold expired":                 {0, untilTold, life + rest},
		"a second after it expired, though it overstayed": {0, after(life+rest/2, returns), life + rest},
		"at once when it overstayed for longer":           {0, after(2*ttl, returns), 2 * ttl},
		"at once when the backend ended its term":         {0, after(3*time.Second, revoked), 3 * time.Second},
		"once a second when that ends every term":         {0, revoked, rest},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &candidate{Client: locktest.New(t, locker.WithoutRenewal())}
				p.Election = election.New(p.Client.Client, "leader")
				ctx, cancel := context.WithCancel(t.Context())
				var terms []uint64
				var began []time.Time
				require.NoError(t, p.Lead(ctx, c.reserve, func(ctx context.Context, term uint64) {
					terms, began = append(terms, term), append(began, time.Now())
					if len(terms) == 3 {
						cancel()
						return
					}
					c.lead(ctx, p)
				}))
				assert.Equal(t, []time.Duration{c.next, c.next}, []time.Duration{began[1].Sub(began[0]), began[2].Sub(began[1])})
				assert.IsIncreasing(t, terms)
			})
		})
	}
}

// What it cannot give back for certain, Lead says.
func TestLead_whoStopsAfterALossSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := make(chan struct{})
		a := campaign(t, "", func(context.Context, uint64) { <-woken }, locker.WithoutRenewal())
		time.Sleep(ttl)
		done := testwait.Go(a.stop)
		synctest.Wait()
		close(woken)
		require.ErrorIs(t, <-done, locker.ErrLost)
	})
}

func TestLead_inAnOutageAsksNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		c := locktest.New(t, locker.WithTTL(ttl), locker.WithObserver(locker.Observer{Done: func(_ context.Context, call locker.Call, r locker.Result) {
			if call.Op == "lock" && errors.Is(r.Err, locktest.ErrUnreachable) {
				calls.Add(1)
			}
		}}))
		c.Down()
		ctx, cancel := context.WithCancel(t.Context())
		e := election.New(c.Client, "leader")
		done := testwait.Go(func() error {
			return e.Lead(ctx, reserve, func(ctx context.Context, _ uint64) { <-ctx.Done() })
		})
		time.Sleep(time.Minute)
		assert.EqualValues(t, time.Minute/(ttl/2+rest), calls.Load(), "each rides out half a TTL, and rests before the next")
		c.Up()
		time.Sleep(ttl)
		assert.True(t, e.IsLeader(), "when it is over")
		cancel()
		require.NoError(t, <-done)
	})
}

func TestLead_ofWhatIsNotValidReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t)
		lead := func(context.Context, uint64) { t.Error("it leads") }
		began := time.Now()
		require.Error(t, election.New(c.Client, "").Lead(t.Context(), 0, lead))
		require.Error(t, election.New(c.Client, "x", nil).Lead(t.Context(), 0, lead))
		require.Error(t, election.New(c.Client, "x", locker.WithBackoff(0, 0)).Lead(t.Context(), 0, lead))
		require.ErrorIs(t, election.New(c.Client, "x", locker.WithTTL(0)).Lead(t.Context(), 0, lead), locker.ErrUnsupported)
		c.FailNext(locker.ErrUnsupported) // says a server that is asked for the first time
		require.ErrorIs(t, election.New(c.Client, "x").Lead(t.Context(), 0, lead), locker.ErrUnsupported)
		require.ErrorContains(t, election.New(c.Client, "x").Lead(t.Context(), ttl, lead), "reserve")
		require.ErrorContains(t, election.New(c.Client, "x").Lead(t.Context(), -1, lead), "reserve")
		h, err := c.Mutex("x").TryAcquire(t.Context())
		require.NoError(t, err, "it was given back")
		require.NoError(t, h.Unlock(t.Context()))

		a := campaign(t, "", nil)
		synctest.Wait()
		require.ErrorContains(t, a.Lead(t.Context(), 0, lead), "already")
		require.NoError(t, a.stop())
		require.NoError(t, c.Close())
		require.ErrorIs(t, election.New(c.Client, "x").Lead(t.Context(), 0, lead), locker.ErrClosed)
		assert.Equal(t, began, time.Now())
	})
}

// A hold on a session that others share lasts for less than its TTL until the session is renewed,
// which may take a while.
func TestLead_ofASessionOfWhichLessIsLeftThanTheReserve(t *testing.T) {
	for name, slow := range map[string]time.Duration{"renewed": 0, "slowly": ttl / 5} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &sessionDriver{Driver: memory.NewDriver()}
				d.slow.Store(int64(slow))
				c := testwait.Closed(locker.New(d, locker.WithTTL(ttl)))(t)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(2*rest, func() { d.slow.Store(0) })
				time.AfterFunc(ttl, cancel)
				const reserve = ttl * 9 / 10
				terms := 0
				require.NoError(t, election.New(c, "x").Lead(ctx, reserve, func(ctx context.Context, _ uint64) {
					assert.NoError(t, ctx.Err())
					terms++
					<-ctx.Done()
				}))
				assert.NotZero(t, terms)
			})
		})
	}
}

// sessionDriver has leases of which six tenths are left when they are granted.
type sessionDriver struct {
	driver.Driver

	slow atomic.Int64 // how long an Extend takes
}

type sessionClaim struct {
	driver.Claim

	of       *sessionDriver
	extended atomic.Bool
}

func (d *sessionDriver) Claim(req driver.Request) driver.Claim {
	return &sessionClaim{Claim: d.Driver.Claim(req), of: d}
}

func (c *sessionClaim) Validity() time.Duration {
	left := c.Claim.Validity()
	if !c.extended.Load() {
		left -= ttl * 4 / 10
	}
	return left
}

func (c *sessionClaim) Extend(ctx context.Context, ttl time.Duration) error {
	err := c.Claim.Extend(ctx, ttl)
	time.Sleep(time.Duration(c.of.slow.Load()))
	c.extended.Store(true)
	return err
}

func TestLead_afterAPanicAnotherLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := election.New(locktest.New(t).Client, "leader")
		assert.PanicsWithValue(t, "no", func() {
			_ = e.Lead(t.Context(), reserve, func(context.Context, uint64) { panic("no") })
		})
		assert.False(t, e.IsLeader())
		b := campaign(t, "", nil)
		wantLeader(t, b)
		require.NoError(t, b.stop())
	})
}

func TestClose_endsTheTermAndLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := campaign(t, "", nil)
		wantLeader(t, a)
		require.NoError(t, a.Close())
		assert.False(t, a.IsLeader())
		time.Sleep(2 * rest) // by then Lead has ended by itself
		require.ErrorIs(t, a.stop(), locker.ErrClosed)
	})
}

func ExampleElection_Lead() {
	client, err := locker.Open(context.Background(), "mem://example-election")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background()) // a program stops at a signal: see signal.NotifyContext
	defer stop()

	e := election.New(client, "scheduler", locker.WithTTL(10*time.Second), locker.WithMetadata("web-1"))
	err = e.Lead(ctx, 2*time.Second, func(ctx context.Context, term uint64) {
		leader, err := e.Leader(ctx)
		fmt.Println(leader.ID, "leads:", leader.Term == term, e.IsLeader(), err)
		stop()
		<-ctx.Done()
	})
	fmt.Println(err, e.IsLeader())
	// Output:
	// web-1 leads: true true <nil>
	// <nil> false
}

func TestObserve_tellsOfEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watched := locktest.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		var seen []election.Leader
		var errs []error
		done := make(chan struct{})
		go func() {
			defer close(done)
			for leader, err := range election.New(watched.Client, "leader").Observe(ctx, time.Second) {
				if err != nil {
					errs = append(errs, err)
					assert.Zero(t, leader)
					continue
				}
				seen = append(seen, leader)
			}
		}()
		time.Sleep(time.Minute)
		a := campaign(t, "a", nil)
		synctest.Wait()
		first := a.Term()
		b := campaign(t, "b", nil)
		time.Sleep(time.Minute)
		require.NoError(t, a.stop())
		time.Sleep(time.Minute)
		second := b.Term()
		time.Sleep(time.Second / 2) // between two looks
		watched.Down()
		time.Sleep(3 * time.Second)
		watched.Up()
		time.Sleep(time.Minute)
		require.NoError(t, b.stop())
		time.Sleep(time.Minute)
		cancel()
		<-done
		assert.Equal(t, []election.Leader{{}, {"a", first}, {"b", second}, {"b", second}, {}}, seen, "after an outage it is told again")
		require.Len(t, errs, 3)
		require.ErrorIs(t, errs[0], locktest.ErrUnreachable)
	})
}

// scripted is a Driver that tells of these terms, one after the other.
type scripted struct {
	driver.Driver
	terms []uint64
}

func (s *scripted) Inspect(context.Context, string) (driver.State, error) {
	token := s.terms[0]
	if len(s.terms) > 1 {
		s.terms = s.terms[1:]
	}
	return driver.State{Held: token != 0, Token: token}, nil
}

// A replica, or a follower, may answer what was the case a while ago.
func TestObserve_neverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testwait.Closed(locker.New(&scripted{memory.NewDriver(), []uint64{3, 7, 3, 7, 0, 7, 5, 9, 7, 11}}))(t)
		var seen []uint64
		for leader, err := range election.New(c, "leader").Observe(t.Context(), time.Second) {
			require.NoError(t, err)
			if seen = append(seen, leader.Term); leader.Term == 11 {
				break
			}
		}
		assert.Equal(t, []uint64{3, 7, 0, 7, 9, 11}, seen)
	})
}

func TestObserve_endsWhereThereIsNothingToSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unsupported := testwait.Closed(locker.New(struct{ driver.Driver }{memory.NewDriver()}))(t) // no Operator
		closed := locktest.New(t)
		require.NoError(t, closed.Close())
		for c, want := range map[*locker.Client]error{unsupported: locker.ErrUnsupported, closed.Client: locker.ErrClosed} {
			var errs []error
			for _, err := range election.New(c, "leader").Observe(t.Context(), time.Second) {
				errs = append(errs, err)
			}
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], want)
		}
	})
}

func TestObserve_atNoInterval(t *testing.T) {
	for leader, err := range election.New(locktest.New(t).Client, "leader").Observe(t.Context(), 0) {
		require.ErrorContains(t, err, "intervals of 0s")
		assert.Zero(t, leader)
	}
}
