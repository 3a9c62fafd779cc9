package etcd

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/internal/clock"
)

// watcher hears of keys of holds that are gone, for one session. It has one stream, whatever the number of holds is; the client's own Watch costs
// two goroutines each.
type watcher struct {
	session *session
	running sync.WaitGroup
	changed chan struct{} // holds one: there are requests

	mu       sync.Mutex
	started  bool
	last     int64            // number of a watch
	watched  map[int64]*lease // by the numbers of their watches
	requests []*etcdserverpb.WatchRequest
}

func newWatcher(s *session) *watcher {
	return &watcher{session: s, changed: make(chan struct{}, 1), watched: map[int64]*lease{}}
}

// Watch implements sessions.Backend.
func (s *session) Watch(leases []*lease) {
	w := s.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range leases {
		w.add(l, l.revision()+1)
	}
	if !w.started {
		w.started = true
		w.running.Go(w.run)
	}
}

// add has a key watched from a revision on, unless its lease has ended. The caller holds w.mu, which comes before that of a lease.
func (w *watcher) add(l *lease, from int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.finished {
		return
	}
	w.last++
	l.watch, w.watched[w.last] = w.last, l
	w.request(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{
		Key: []byte(l.key), StartRevision: from, WatchId: w.last, Filters: []etcdserverpb.WatchCreateRequest_FilterType{etcdserverpb.WatchCreateRequest_NOPUT},
	}}})
}

// remove ends a watch, and returns whose it was: nil if it had ended.
func (w *watcher) remove(number int64) *lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.watched[number]
	if l != nil {
		delete(w.watched, number)
		w.request(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{
			CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: number},
		}})
	}
	return l
}

func (w *watcher) request(r *etcdserverpb.WatchRequest) {
	w.requests = append(w.requests, r)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// run keeps a stream until the session ends. What is missed between two, the next tells.
func (w *watcher) run() {
	ctx := w.session.Context()
	for {
		w.converse(ctx)
		if clock.Sleep(ctx, max(w.session.TTL/3, time.Second)) != nil { // meanwhile holds hear at their renewals
			return
		}
		w.mu.Lock()
		again := w.watched
		w.watched, w.requests = map[int64]*lease{}, nil
		for _, l := range again {
			w.add(l, l.revision()+1)
		}
		w.mu.Unlock()
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

// hear takes in what the server says, and returns false if the stream is of no more use. It begins a watch of a past that was compacted again.
func (w *watcher) hear(resp *etcdserverpb.WatchResponse) bool {
	switch {
	case resp.Canceled && resp.CompactRevision > 0:
		w.mu.Lock()
		defer w.mu.Unlock()
		if l := w.watched[resp.WatchId]; l != nil {
			delete(w.watched, resp.WatchId)
			w.add(l, resp.CompactRevision)
		}
	case resp.Canceled:
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.watched[resp.WatchId] == nil // we have cancelled it
	case len(resp.Events) > 0:
		if l := w.remove(resp.WatchId); l != nil && !l.leaving() {
			l.session.Tell(l)
		}
	}
	return true
}
