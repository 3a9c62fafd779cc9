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

// watcher watches keys for the entries of one session: for one that is held its own, for one that
// waits that before it, and the queue for one that is held and asks who waits. It has one stream,
// whatever the number of entries is; the client's own Watch costs a goroutine or two each.
type watcher struct {
	session *session
	running sync.WaitGroup
	changed chan struct{} // holds one: there are requests

	starting sync.Once

	mu       sync.Mutex
	last     int64            // number of a watch
	watched  map[int64]*watch // by their numbers
	requests []*etcdserverpb.WatchRequest
}

// watch is of one key, for one entry. It ends with what it tells.
type watch struct {
	entry *entry
	key   string
	wake  func() // of one that waits for the key to go, or to become a share; nil: it is that of a hold
	queue bool   // the key is a folder, and wake is called when somebody comes
	from  int64  // the first revision that it tells of
}

func newWatcher(s *session) *watcher {
	return &watcher{session: s, changed: make(chan struct{}, 1), watched: map[int64]*watch{}}
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

// await has e woken when the key ahead is gone or the session has ended. It begins now, and not
// where the last look has been: a server that has something to tell of the past gets round to that
// ten times a second. So e is woken when it has begun, too.
func (w *watcher) await(e *entry, ahead string) {
	w.mu.Lock()
	if t := w.watched[e.watch]; t == nil || t.key != ahead {
		w.cancel(e.watch)
		w.add(&watch{entry: e, key: ahead, wake: e.Wake})
	}
	w.mu.Unlock()
	if w.session.Ended() {
		e.Wake()
	}
}

// awaitComer has wake called when a key is put in the queue after a revision, until ctx ends.
func (w *watcher) awaitComer(ctx context.Context, e *entry, revision int64, wake func()) {
	t := &watch{entry: e, key: e.folder, wake: wake, queue: true, from: revision + 1}
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

// add begins a watch, and the stream with the first one, unless its entry was released. The caller
// holds w.mu, which comes before that of an entry.
func (w *watcher) add(t *watch) {
	if t.entry.leaving() {
		return
	}
	w.starting.Do(func() { w.running.Go(w.run) })
	w.last++
	w.watched[w.last] = t
	create := &etcdserverpb.WatchCreateRequest{Key: []byte(t.key), StartRevision: t.from, WatchId: w.last}
	filter := etcdserverpb.WatchCreateRequest_NOPUT
	if t.queue {
		filter, create.RangeEnd = etcdserverpb.WatchCreateRequest_NODELETE, []byte(clientv3.GetPrefixRangeEnd(t.key))
	} else {
		t.entry.watch = w.last
	}
	if t.wake == nil || t.queue || !t.entry.Shared { // a share also waits for the holder's Downgrade
		create.Filters = []etcdserverpb.WatchCreateRequest_FilterType{filter}
	}
	w.request(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}})
}

// cancel ends a watch, if it has not ended. The caller holds w.mu.
func (w *watcher) cancel(number int64) {
	if w.watched[number] == nil {
		return
	}
	delete(w.watched, number)
	w.request(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{
		CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: number},
	}})
}

// remove ends the watch of an entry.
func (w *watcher) remove(e *entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel(e.watch)
	e.watch = 0
}

func (w *watcher) request(r *etcdserverpb.WatchRequest) {
	w.requests = append(w.requests, r)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// run keeps a stream until the session ends. Of what is missed between two, holds are told by the
// next, and those who wait look when that has begun.
func (w *watcher) run() {
	const pause = 500 * time.Millisecond
	ctx := w.session.Context()
	for {
		w.converse(ctx)
		if clock.Sleep(ctx, pause+rand.N(pause)) != nil {
			break
		}
		w.mu.Lock()
		again := w.watched
		w.watched, w.requests = map[int64]*watch{}, nil
		for _, t := range again {
			w.add(t)
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.watched {
		if t.wake != nil {
			t.wake()
		}
	}
}

// converse has one stream, and returns when that has ended.
func (w *watcher) converse(ctx context.Context) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	stream, err := etcdserverpb.NewWatchClient(w.session.driver.cli.ActiveConnection()).Watch(ctx)
	if err != nil {
		cancel()
		return
	}
	var receiving sync.WaitGroup
	receiving.Go(func() {
		defer cancel()
		for resp, err := stream.Recv(); err == nil && w.hear(resp); resp, err = stream.Recv() {
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

// hear takes in what the server says, and returns false if the stream is of no more use.
func (w *watcher) hear(resp *etcdserverpb.WatchResponse) bool {
	w.mu.Lock()
	t := w.watched[resp.WatchId]
	switch {
	case resp.Canceled && resp.CompactRevision > 0: // it was to begin in a past that is compacted
		delete(w.watched, resp.WatchId)
		if t != nil && !t.queue {
			t.from = resp.CompactRevision
			w.add(t)
		}
	case resp.Canceled && t != nil: // else we have cancelled it
		w.mu.Unlock()
		return false
	case len(resp.Events) > 0:
		w.cancel(resp.WatchId)
	}
	w.mu.Unlock()
	switch {
	case t == nil:
	case t.wake != nil && (resp.Created && !t.queue || resp.Canceled || len(resp.Events) > 0):
		t.wake()
	case len(resp.Events) > 0 && !t.entry.leaving():
		w.session.Tell(t.entry)
	}
	return true
}
