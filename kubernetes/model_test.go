package kubernetes

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testwait"
)

// Who waits watches, and asks for nothing while the holder renews. A release costs a waiter one
// request.
func TestCounts_waiting(t *testing.T) {
	f := newFake(t)
	c := take(t, f.driver(t))
	client := testwait.Closed(locker.New(f.driver(t), locker.WithTTL(request.TTL), locker.WithPrefix("locker")))(t)
	const waiters = 3
	holds := make(chan *locker.Hold, waiters)
	asked := f.sent(func() {
		for range waiters {
			go func() {
				hold, err := client.Mutex("orders/42").Acquire(t.Context())
				assert.NoError(t, err)
				holds <- hold
			}()
		}
		eventually(t, "they watch", func() bool { return f.count("WATCH") > 0 })
		time.Sleep(100 * time.Millisecond) // the others have entered
	})
	assert.Equal(t, 1, asked["WATCH"], "%v", asked)
	assert.LessOrEqual(t, asked["GET"], 6, "each looks, and once more if the watch begins meanwhile")
	assert.Equal(t, map[string]int{"PUT": 20}, f.sent(func() {
		for range 20 {
			require.NoError(t, c.Extend(t.Context(), request.TTL))
		}
		time.Sleep(100 * time.Millisecond) // they have heard of it
	}), "the holder's own")
	cost := f.sent(func() {
		require.NoError(t, c.Release(t.Context()))
		for range waiters {
			require.NoError(t, (<-holds).Unlock(t.Context()))
		}
	})
	assert.Equal(t, 7, cost["PUT"], "a release, and three takes and releases: %v", cost)
	assert.Zero(t, cost["GET"])
}

// Where many Clients wait, most of them do not ask when the lock is free.
func TestCounts_manyClientsWait(t *testing.T) {
	f := newFake(t)
	f.slow = firstSpread / 5
	const clients, rounds = 50, 10
	holds := make(chan *locker.Hold, clients)
	for range clients {
		client := testwait.Closed(locker.New(f.driver(t), locker.WithTTL(10*time.Minute)))(t)
		go func() {
			if hold, err := client.Mutex("x").Acquire(t.Context()); err == nil {
				holds <- hold
			}
		}()
	}
	eventually(t, "all wait", func() bool { return f.count("WATCH") >= clients-1 })
	asked := f.sent(func() {
		for range rounds {
			require.NoError(t, (<-holds).Unlock(t.Context()))
		}
	})
	assert.Less(t, asked["PUT"], rounds*clients/2, "half of them would ask: %v", asked)
}

// The spread of who does not know how many contend is right for few and for many.
func TestDelay_fewContendTogether(t *testing.T) {
	const rounds, latency = 500, firstSpread / 5
	v := &view{spread: firstSpread}
	for _, clients := range []int{2, 10, 100} {
		outrun := 0
		for range rounds {
			times := make([]time.Duration, clients)
			for i := range times {
				times[i] = v.delay()
				assert.LessOrEqual(t, times[i], v.spread)
			}
			slices.Sort(times)
			together, _ := slices.BinarySearch(times, times[0]+latency)
			outrun += together - 1
		}
		assert.Less(t, outrun, 5*rounds, "%d clients", clients)
	}
}

// A waiter that another was faster than makes one request, and hears from its watch who has the lock.
// It looks if the watch has not told.
func TestCounts_aWaiterThatIsOutrun(t *testing.T) {
	f := newFake(t)
	d, holder := f.driver(t), take(t, f.driver(t))
	waiter, woken := wait(t, d, request)
	require.NoError(t, holder.Release(t.Context()))
	require.NoError(t, await(t, woken))
	free, known := d.views.recall(request.Name, true)
	require.True(t, known)
	take(t, f.driver(t))
	var held sighting
	eventually(t, "the watch tells", func() bool { held, _ = d.views.recall(request.Name, true); return held.owner != "" })
	ask := func() {
		_, err := waiter.Ask(t.Context())
		require.ErrorIs(t, err, driver.ErrHeld)
	}
	for range 2 {
		assert.Empty(t, f.sent(ask), "the watch has told")
		d.views.observe(request.Name, free.object, time.Now()) // as if it had not told yet
		assert.Equal(t, map[string]int{"PUT": 1}, f.sent(ask))
		d.views.observe(request.Name, held.object, time.Now())
	}
	d.views.observe(request.Name, free.object, time.Now())
	assert.Equal(t, map[string]int{"GET": 1}, f.sent(ask))
	assert.Empty(t, f.sent(ask))
	d.views.mu.Lock()
	d.views.of[request.Name].seen.heard = time.Now().Add(-request.TTL / 2)
	d.views.mu.Unlock()
	assert.Equal(t, map[string]int{"GET": 1}, f.sent(ask), "its watch may be dead")
	assert.Empty(t, f.sent(func() { require.NoError(t, waiter.Release(t.Context())) }))
}

// A watch that ends at once is begun again after longer and longer pauses.
func TestWatch_endsAtOnce(t *testing.T) {
	f := newFake(t)
	take(t, f.driver(t))
	f.answer = func(_ http.ResponseWriter, r *http.Request) bool { return r.URL.Query().Has("watch") }
	begun := f.sent(func() {
		wait(t, f.driver(t), request)
		time.Sleep(1500 * time.Millisecond)
	})
	assert.LessOrEqual(t, begun["GET"], 2*7, "a look and a watch each")
}

// A watch that has ended begins again, and who waits is woken. While the API server cannot be
// reached, nobody is told what it said before. A Lease that is deleted is free.
func TestWatch_ends(t *testing.T) {
	f := newFake(t)
	long := request
	long.TTL = 10 * time.Minute // nobody looks, or sees it expire
	_, err := claims.Take(t.Context(), f.driver(t), long)
	require.NoError(t, err)
	d := f.driver(t)
	waiter, woken := wait(t, d, long)
	eventually(t, "it watches", func() bool { return f.count("WATCH") == 1 })

	f.refuses(http.StatusServiceUnavailable)
	f.CloseClientConnections()
	eventually(t, "another asks in vain", func() bool {
		other := long
		other.Wake = func() {}
		_, err := d.Claim(other).Ask(t.Context())
		return err != nil && !errors.Is(err, driver.ErrHeld)
	})
	f.refuses(0)
	eventually(t, "it watches again", func() bool { return f.count("WATCH") == 2 })
	f.set(func() {
		name := objectName(long.Name)
		f.store("DELETED", f.leases[name].DeepCopy())
		delete(f.leases, name)
	})
	require.NoError(t, await(t, woken))
	_, err = waiter.Ask(t.Context())
	require.NoError(t, err)
}

// wait has a claim wait. woken gets a nil when it is woken.
func wait(t *testing.T, d *backend, req driver.Request) (c driver.Claim, woken chan error) {
	t.Helper()
	woken = make(chan error, 10)
	req.Wake = func() { woken <- nil }
	c = d.Claim(req)
	next, err := c.Ask(t.Context())
	require.ErrorIs(t, err, driver.ErrHeld)
	assert.LessOrEqual(t, next, req.TTL/2+firstSpread, "then it looks whether the watch still tells")
	return c, woken
}

// A waiter that gives up when it is woken has the next one woken. So has one that comes when it has
// seen the hold, and the lock is free by now.
func TestRelease_ofAWaiterThatWasWoken(t *testing.T) {
	f := newFake(t)
	c := take(t, f.driver(t))
	d := f.driver(t)
	first, woken := wait(t, d, request)
	_, next := wait(t, d, request)
	held, _ := d.views.recall(request.Name, false)
	require.NoError(t, c.Release(t.Context()))
	require.NoError(t, await(t, woken))
	assert.Empty(t, next)
	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, await(t, next))
	late := request
	late.Wake = func() {}
	d.enter(d.Claim(late).(*claim), held)
	require.NoError(t, await(t, next))
}

// An answer that comes late does not hide what was told since. What a server says that was restored
// from a backup counts, though its versions are lower. Of names that nobody waits for, few are
// kept.
func TestViews(t *testing.T) {
	f := newFake(t)
	d := f.driver(t)
	sent := time.Now()
	c := take(t, d)
	held := c.(*claim).latest()
	require.NoError(t, c.Release(t.Context()))
	d.views.observe(request.Name, held, sent)
	s, _ := d.views.recall(request.Name, false)
	assert.Empty(t, s.owner)
	d.views.observe(request.Name, held, time.Now())
	s, _ = d.views.recall(request.Name, false)
	assert.Equal(t, held.owner, s.owner)
	for i := range 2 * mostViews {
		d.views.recall(strconv.Itoa(i), false)
	}
	assert.Len(t, d.views.of, mostViews)
}

// story is the course of a hold. A Lease is stored at second 0 and, if renewed is above 0, once
// more then. An observer looks at it at first, and again at last. Each time another API server may
// answer, and each has a clock of its own.
type story struct {
	ttl, first, last, renewed time.Duration
	stored, again             time.Duration // how far the clocks of the servers that store are ahead
	answers, answersLast      time.Duration // those of the servers that answer
}

var zero = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// expiry plays a story. It returns when the observer would take the hold over, from when on it may,
// and by when it has to: a TTL after it first saw the Lease so.
func (s story) expiry() (takes, may, must time.Time) {
	lease := func(at, ahead time.Duration) object {
		return object{owner: "holder", ttl: s.ttl, lease: &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: manager, FieldsV1: renewal, Time: &metav1.Time{Time: zero.Add(at + ahead).Truncate(time.Second)}},
			}},
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: zero.Add(at)}},
		}}
	}
	looks := func(at, ahead time.Duration) object {
		o := lease(0, s.stored)
		if s.renewed > 0 && s.renewed <= at {
			o = lease(s.renewed, s.again)
		}
		o.date = zero.Add(at + ahead).Truncate(time.Second)
		return o
	}
	first, last := zero.Add(s.first), zero.Add(s.last)
	known := looks(s.first, s.answers).seen(nil, first)
	known = looks(s.last, s.answersLast).seen(known, last)
	may, must = zero.Add(s.ttl), first.Add(s.ttl)
	if s.renewed > 0 && s.renewed <= s.last {
		may = may.Add(s.renewed)
		if s.renewed > s.first {
			must = last.Add(s.ttl)
		}
	} // else its version is another by then, and the take is refused
	return later(known.since.Add(known.ttl), last), may, later(must, last)
}

// explore plays all stories with clocks that are up to skew apart. It returns by how much a hold is
// taken over too early, and too late, at worst.
func explore(ttl, skew time.Duration) (early, late time.Duration) {
	step := ttl/7 + 10*time.Millisecond // not in step with whole seconds
	clocks := []time.Duration{0, skew}
	for first := time.Duration(0); first < 3*ttl; first += step {
		for last := first; last < 3*ttl; last += step {
			for _, renewed := range []time.Duration{0, step, ttl / 3, first, last} {
				for i := range 16 {
					s := story{
						ttl: ttl, first: first, last: last, renewed: renewed,
						stored: clocks[i%2], again: clocks[i/2%2], answers: clocks[i/4%2], answersLast: clocks[i/8],
					}
					takes, may, must := s.expiry()
					early, late = max(early, may.Sub(takes)), max(late, takes.Sub(must))
				}
			}
		}
	}
	return early, late
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A hold expires by the API servers' clocks, neither too early nor too late while they differ by no more
// than the margin. (By the observer's own clock, as client-go has it, it never would be too early; but a
// program that looks once, as TryLock does, would never see a hold expire that has no holder any more.)
func TestModel_expiry(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Second, 12 * time.Second} {
		allowed := min(margin, ttl)
		for skew, safe := range map[time.Duration]bool{0: true, allowed: true, allowed + 3*time.Second: false} {
			early, late := explore(ttl, skew)
			t.Logf("TTL %v, clocks %v apart: at most %v too early, %v late", ttl, skew, early, late)
			assert.Equal(t, safe, early <= 0, "TTL %v, clocks %v apart: %v too early", ttl, skew, early)
			assert.LessOrEqual(t, late, time.Duration(0), "TTL %v, clocks %v apart: %v too late", ttl, skew, late)
		}
	}
}
