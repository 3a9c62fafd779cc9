package etcd

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/internal/clock"
)

// watcher has the watches of one session on one stream: for a waiter, of the key ahead of its own; for
// a hold that lasts, of its own key; for a hold that asks who waits, of the folder. The client's own
// Watch would cost a goroutine or two each.
//
// A waiter's watch begins at the present revision: a watch that begins in the past is served only
// ten times a second. The watched key may have gone before that, so the waiter is woken when the
// watch has been created, too; a share that joins a watch, at once if its last read was before
// that. A hold's watch begins behind the revision that created its key, so nothing is missed. A
// watch ends with its first event. If the stream breaks, all watches are created again on the next
// one. Lost event: waiters poll, and holds are verified by their renewals.
type watcher struct {
	session *session
	running sync.WaitGroup
	changed chan struct{} // holds one: there are requests

	starting sync.Once

	mu       sync.Mutex
	last     int64            // number of a watch
	watched  map[int64]*watch // by their numbers
	shared   map[string]int64 // the numbers of those for shares that wait, by their keys
	requests []*etcdserverpb.WatchRequest
}

// watch is of one key. Shares that wait for one key have one watch.
type watch struct {
	key     string
	entry   *entry   // the hold that it is for; nil: it is for waiters
	comer   func()   // the key is a folder, and comer is called when a key is put there
	from    int64    // the first revision that it reports
	waiting []*entry // for the key to go, or to become a share
	begun   int64    // it reports everything after this revision; 0: not created yet
}

func newWatcher(s *session) *watcher {
	return &watcher{session: s, changed: make(chan struct{}, 1), watched: map[int64]*watch{}, shared: map[string]int64{}}
}

// Watch implements sessions.Backend.
func (s *session) Watch(entries []*entry) {
	w := s.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range entries {
		w.add(&watch{entry: e, key: e.key, from: e.created.Load() + 1})
	}
}

// await has e woken when the key ahead is gone, or the session has ended.
func (w *watcher) await(e *entry, ahead string) {
	again := false
	w.mu.Lock()
	if t := w.watched[e.watch]; t == nil || t.key != ahead {
		w.leave(e)
		if t := w.watched[w.shared[ahead]]; t != nil && e.Shared {
			t.waiting = append(t.waiting, e)
			e.watch = w.shared[ahead]
			again = e.seen.Load() < t.begun
		} else {
			w.add(&watch{key: ahead, waiting: []*entry{e}})
		}
	}
	w.mu.Unlock()
	if again || w.session.Ended() {
		e.Wake()
	}
}

// awaitComer has wake called when a key is put in the queue after a revision, until ctx ends.
func (w *watcher) awaitComer(ctx context.Context, e *entry, revision int64, wake func()) {
	t := &watch{entry: e, key: e.folder, comer: wake, from: revision + 1}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(t)
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for number, other := range w.watched {
			if other == t {
				w.cancel(number)
			}
		}
	})
}

// stop waits until the stream has ended, after the session.
func (w *watcher) stop() {
	w.starting.Do(func() {})
	w.running.Wait()
}

// add begins a watch, and the stream with the first one, unless all that it is for were released.
// The caller holds w.mu, which comes before that of an entry.
func (w *watcher) add(t *watch) {
	t.waiting = slices.DeleteFunc(t.waiting, (*entry).leaving)
	if t.entry == nil && len(t.waiting) == 0 || t.entry != nil && t.entry.leaving() {
		return
	}
	w.starting.Do(func() { w.running.Go(w.run) })
	w.last++
	w.watched[w.last], t.begun = t, 0
	for _, e := range t.waiting {
		e.watch = w.last
	}
	create := &etcdserverpb.WatchCreateRequest{Key: []byte(t.key), StartRevision: t.from, WatchId: w.last}
	filter := etcdserverpb.WatchCreateRequest_NOPUT
	switch {
	case t.comer != nil:
		filter, create.RangeEnd = etcdserverpb.WatchCreateRequest_NODELETE, []byte(clientv3.GetPrefixRangeEnd(t.key))
	case t.entry != nil:
		t.entry.watch = w.last
	}
	if t.entry == nil && t.waiting[0].Shared { // which also waits for the holder's Downgrade
		w.shared[t.key] = w.last
	} else {
		create.Filters = []etcdserverpb.WatchCreateRequest_FilterType{filter}
	}
	w.request(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}})
}

// cancel ends a watch, if it has not ended. The caller holds w.mu.
func (w *watcher) cancel(number int64) {
	t := w.watched[number]
	if t == nil {
		return
	}
	delete(w.watched, number)
	if w.shared[t.key] == number {
		delete(w.shared, t.key)
	}
	w.request(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{
		CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: number},
	}})
}

// leave has the watch of an entry go on for others alone. The caller holds w.mu.
func (w *watcher) leave(e *entry) {
	if t := w.watched[e.watch]; t != nil {
		if t.waiting = slices.DeleteFunc(t.waiting, func(other *entry) bool { return other == e }); len(t.waiting) == 0 {
			w.cancel(e.watch)
		}
	}
	e.watch = 0
}

// remove ends the watch of an entry.
func (w *watcher) remove(e *entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave(e)
}

func (w *watcher) request(r *etcdserverpb.WatchRequest) {
	w.requests = append(w.requests, r)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// run keeps a stream until the session ends. After one that has ended soon, as when the server refuses
// its watches, there is a backoff that doubles.
func (w *watcher) run() {
	const shortest, longest = 500 * time.Millisecond, 2 * time.Second
	ctx, pause := w.session.Context(), shortest
	for {
		began := clock.Now()
		w.runStream(ctx)
		wait := pause + rand.N(pause)
		if lasted := clock.Since(began); lasted > longest {
			pause, wait = shortest, rand.N(shortest/10)
		} else {
			pause = min(2*pause, longest)
		}
		if clock.Sleep(ctx, wait) != nil {
			break
		}
		w.mu.Lock()
		again := w.watched
		w.watched, w.shared, w.requests = map[int64]*watch{}, map[string]int64{}, nil
		for _, t := range again {
			w.add(t)
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.watched {
		t.wake()
	}
}

// wake wakes those who wait. The caller holds the watcher's mutex, or the watch has ended.
func (t *watch) wake() {
	for _, e := range t.waiting {
		e.Wake()
	}
	if t.comer != nil {
		t.comer()
	}
}

// runStream has one stream, and returns when that has ended.
func (w *watcher) runStream(ctx context.Context) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	stream, err := etcdserverpb.NewWatchClient(w.session.driver.cli.ActiveConnection()).Watch(ctx)
	if err != nil {
		cancel()
		return
	}
	var receiving sync.WaitGroup
	receiving.Go(func() {
		defer cancel()
		for resp, err := stream.Recv(); err == nil && w.receive(resp); resp, err = stream.Recv() {
		}
	})
	defer receiving.Wait()
	defer cancel()
	for {
		w.mu.Lock()
		requests := w.requests
		w.requests = nil
		w.mu.Unlock()
		if slices.ContainsFunc(requests, func(r *etcdserverpb.WatchRequest) bool { return stream.Send(r) != nil }) {
			return
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			return
		}
	}
}

// receive handles a message of the server, and returns false if the stream is of no more use.
func (w *watcher) receive(resp *etcdserverpb.WatchResponse) bool {
	w.mu.Lock()
	t := w.watched[resp.WatchId]
	switch {
	case resp.Canceled && resp.WatchId == clientv3.InvalidWatchID:
		// The server refuses some new watch: the stream's token has expired, or a right is missing.
		// The next stream has a token of its own.
		w.mu.Unlock()
		return false
	case t == nil: // we have cancelled it
	case resp.Canceled && resp.CompactRevision > 0: // it was to begin at a revision that is compacted
		delete(w.watched, resp.WatchId)
		if t.comer == nil {
			t.from = resp.CompactRevision
			w.add(t)
		} else {
			t.wake()
		}
	case resp.Canceled:
		w.mu.Unlock()
		return false
	case len(resp.Events) > 0:
		w.cancel(resp.WatchId)
		if len(t.waiting) > 1 { // all are shares
			w.running.Go(func() { w.session.settleTogether(t) })
		} else {
			t.wake()
		}
	case resp.Created && t.entry == nil:
		t.begun = resp.Header.Revision
		t.wake()
	}
	w.mu.Unlock()
	if t != nil && t.entry != nil && t.comer == nil && len(resp.Events) > 0 && !t.entry.leaving() {
		w.session.ReportLost(t.entry)
	}
	return true
}
