package kubernetes

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/go-locker/locker/internal/clock"
)

// sighting is a Lease, and since when it has been unchanged by what this process knows.
type sighting struct {
	object
	since time.Time // of the hold; no earlier than it was last renewed, if the clocks of API servers agree
	heard time.Time // when it was last known to be so
}

// seen returns what is known after an answer that came at now. last is what was known before, or
// nil.
func (o object) seen(last *sighting, now time.Time) *sighting {
	s := &sighting{object: o, since: now.Add(-o.age()), heard: now}
	if last != nil && last.sameHold(o) && last.since.Before(s.since) {
		s.since = last.since
	}
	return s
}

// expired reports whether nobody holds the lock any more.
func (s sighting) expired(now time.Time) bool {
	return s.owner == "" || now.Sub(s.since) >= s.ttl
}

// view is what a Driver knows of one name, and who waits for it.
type view struct {
	seen    *sighting // nil: it is not known, or there is no Lease
	waiters []*claim  // the first is woken when the lock is free
	watch   *watch    // nil if nobody waits
	spread  time.Duration
}

// views has those of a Driver, by the name of the lock.
type views struct {
	mu sync.Mutex
	of map[string]*view
}

// mostViews is how many names a Driver remembers for which nobody waits.
const mostViews = 1024

// view returns that of a name. The caller holds vs.mu.
func (vs *views) view(name string) *view {
	v, ok := vs.of[name]
	if ok {
		return v
	}
	if len(vs.of) >= mostViews {
		for other, v := range vs.of { // any
			if len(v.waiters) == 0 {
				delete(vs.of, other)
				break
			}
		}
	}
	v = &view{spread: firstSpread}
	vs.of[name] = v
	return v
}

// recall returns the cached state of a name. It is known without a look if the lock is free, since
// a take would be refused otherwise, and, for a waiter, if a live watch keeps it current (lookAt).
func (vs *views) recall(name string, waits bool) (s sighting, known bool) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.view(name)
	if v.seen == nil {
		return s, false
	}
	return *v.seen, v.seen.owner == "" || waits && v.watch != nil && v.watch.live && time.Now().Before(v.seen.lookAt())
}

// lookAt returns when a waiter looks whether the watch still tells of renewals and releases. A hold
// that is renewed by a Client is renewed before that.
func (s sighting) lookAt() time.Time { return s.heard.Add(s.ttl / 2) }

// observe records a Lease that was read or written by a request sent at sent, or, if sent is zero,
// that came in an event of a watch. It wakes a waiter if the lock is free.
func (vs *views) observe(name string, o object, sent time.Time) sighting {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.view(name)
	s := o.seen(v.seen, time.Now())
	if v.seen == nil || o.version >= v.seen.version || sent.After(v.seen.heard) { // else it is out of date
		v.seen = s
		v.wakeIfFree()
	}
	return *s
}

// removed takes in that there is no Lease. A waiter makes one.
func (vs *views) removed(name string) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v := vs.view(name); v.seen != nil {
		v.seen = nil
		v.wakeIfFree()
	}
}

// When a lock is free, one waiter of each Driver contends for it, after a random delay within its
// view's spread. The first one gets it, and the watch tells the others before they ask. The spread
// grows when a take was refused because another Driver was faster, and halves with each waiter that
// leaves. firstSpread is for a Driver that does not know yet how many contend.
const (
	firstSpread = 80 * time.Millisecond
	leastSpread = 10 * time.Millisecond
	mostSpread  = 500 * time.Millisecond
)

// delay draws from the distribution of Sift (Jamieson, Balakrishnan, Tay, 2003): its density grows
// exponentially, by the factor crowd over the spread. So, whether 3 or 100 contend, few draw a time
// just after the earliest one. A uniform delay is right for one number of contenders only.
func (v *view) delay() time.Duration {
	const crowd = 100
	return time.Duration(float64(v.spread) * math.Log1p((crowd-1)*rand.Float64()) / math.Log(crowd))
}

// wakeIfFree wakes the first waiter, soon. The caller holds views.mu.
func (v *view) wakeIfFree() {
	if len(v.waiters) > 0 && (v.seen == nil || v.seen.owner == "") {
		time.AfterFunc(v.delay(), v.waiters[0].Wake)
	}
}

// enter has c woken when the lock is free, if it is to wait. It returns after what time c is to ask
// again in any case.
func (d *backend) enter(c *claim, s sighting) time.Duration {
	if c.Wake == nil {
		return 0
	}
	vs := &d.views
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.view(c.Name)
	if !slices.Contains(v.waiters, c) {
		v.waiters = append(v.waiters, c)
	}
	if v.watch == nil {
		v.watch = d.startWatch(c.Name, s.lease.ResourceVersion)
	}
	v.wakeIfFree() // it may have been freed since the look
	next := min(time.Until(s.lookAt()), time.Until(s.since.Add(s.ttl)))
	return max(next, 0) + v.delay()
}

// outrun notes that another owner was faster to take a lock that was free. It returns after what time
// c is to ask again if it waits, and its watch will tell who has the lock.
func (d *backend) outrun(c *claim) (next time.Duration, waits bool) {
	vs := &d.views
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.view(c.Name)
	if !slices.Contains(v.waiters, c) {
		return 0, false
	}
	v.spread = min(4*v.spread, mostSpread)
	return v.delay(), v.watch.live
}

// leave ends the wait of c, if it waits.
func (d *backend) leave(c *claim) {
	vs := &d.views
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v, ok := vs.of[c.Name]
	if !ok || !slices.Contains(v.waiters, c) {
		return
	}
	v.waiters = slices.DeleteFunc(v.waiters, func(other *claim) bool { return other == c })
	v.spread = max(v.spread/2, leastSpread)
	if len(v.waiters) == 0 {
		v.watch.stop()
		v.watch = nil
	}
	v.wakeIfFree()
}

// watch has the API server tell of each change to one Lease, as long as somebody waits for it.
type watch struct {
	live bool // the API server tells; guarded by views.mu
	stop context.CancelFunc
}

// A watch that has ended begins again after a pause, which grows while watches end soon.
const (
	leastPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
	lookLimit  = 5 * time.Second // for the look with which it begins again
)

// watchLimit is how many seconds a watch lasts. One that tells nothing because its connection is
// dead lasts no longer.
const watchLimit = 120

// startWatch tells of what follows version. The caller holds views.mu.
func (d *backend) startWatch(name, version string) *watch {
	ctx, stop := context.WithCancel(d.ctx)
	w := &watch{stop: stop}
	d.running.Go(func() {
		defer stop()
		for pause := leastPause; ; pause = min(2*pause, mostPause) {
			began := time.Now()
			if version != "" {
				d.tell(ctx, w, name, version)
			}
			if time.Since(began) > mostPause {
				pause = leastPause
			}
			if clock.Sleep(ctx, pause/2+rand.N(pause)) != nil {
				return
			}
			look, cancel := context.WithTimeout(ctx, lookLimit)
			version = ""
			if s, err := d.read(look, name); err == nil {
				version = s.lease.ResourceVersion
			}
			cancel()
		}
	})
	return w
}

// tell makes one request, and takes in what it tells until it ends: by itself, because the Lease is
// deleted, or because the version is too old.
func (d *backend) tell(ctx context.Context, w *watch, name, version string) {
	ctx, cancel := context.WithTimeout(ctx, (watchLimit+5)*time.Second)
	defer cancel()
	resp, err := d.api.send(ctx, http.MethodGet, "", url.Values{
		"watch": {"true"}, "resourceVersion": {version}, "timeoutSeconds": {strconv.Itoa(watchLimit)}, "fieldSelector": {"metadata.name=" + objectName(name)},
	}, nil)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	defer stop()
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return
	}
	d.views.tells(w, true)
	defer d.views.tells(w, false)
	for events := json.NewDecoder(resp.Body); ; {
		var event struct {
			Type   apiwatch.EventType
			Object coordinationv1.Lease
		}
		if events.Decode(&event) != nil || event.Object.Name != objectName(name) ||
			event.Type != apiwatch.Added && event.Type != apiwatch.Modified {
			return
		}
		o, err := parse(&event.Object, time.Time{})
		if err != nil {
			return
		}
		d.views.observe(name, o, time.Time{})
	}
}

// tells notes that a watch has begun or ended.
func (vs *views) tells(w *watch, live bool) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	w.live = live
}
