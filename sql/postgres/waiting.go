package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	clientID = 8               // bytes that the owners of one Driver begin with
	linger   = 5 * time.Second // how long a Driver goes on to listen when nobody waits any more
)

// waiting has the claims of a Driver that wait, and says to the server, at times, that the Driver
// lives: one request for all of them. The answer tells which locks are about to be free, though
// nobody gives them back: one who waits for such a lock asks then.
type waiting struct {
	driver *backend
	id     []byte

	mu      sync.Mutex
	claims  map[string]*claim // by owner
	places  int64
	idle    time.Time // since when there are none
	running bool
	all     sync.WaitGroup
	closed  context.Context
	stop    context.CancelFunc
}

func newWaiting(d *backend) *waiting {
	w := &waiting{driver: d, id: make([]byte, clientID), claims: map[string]*claim{}}
	_, _ = rand.Read(w.id) // never fails
	w.closed, w.stop = context.WithCancel(context.Background())
	return w
}

// enter adds a claim before it asks: the lock may be handed over before the answer is read.
func (w *waiting) enter(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.places++
	c.place = w.places
	w.claims[string(c.owner)] = c
}

func (w *waiting) leave(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.claims, string(c.owner))
	if len(w.claims) == 0 {
		w.idle = time.Now()
	}
}

func (w *waiting) get(owner string) *claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claims[owner]
}

// wakeOthers has all others ask: their places may be gone.
func (w *waiting) wakeOthers(but *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.claims {
		if c != but {
			c.Wake()
		}
	}
}

// unused reports whether nobody has waited for a while.
func (w *waiting) unused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.claims) == 0 && time.Since(w.idle) > linger
}

// need has the Driver beat and listen while there are claims that wait.
func (w *waiting) need() {
	w.driver.listener.need()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running && w.closed.Err() == nil {
		w.running = true
		w.all.Go(w.run)
	}
}

func (w *waiting) close() {
	w.mu.Lock()
	w.stop()
	w.mu.Unlock()
	w.all.Wait()
}

func (w *waiting) run() {
	for {
		keys, mark, ok := w.names()
		if !ok {
			return
		}
		select {
		case <-time.After(mark / 3):
		case <-w.closed.Done():
			return
		}
		if len(keys) > 0 {
			w.beat(mark)
		}
	}
}

// names returns the keys of what is waited for, and for how long waiters count; or that there is
// nothing to do any more.
func (w *waiting) names() (keys [][]byte, mark time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string]bool{}
	mark = longestMark
	for _, c := range w.claims {
		mark = min(mark, markFor(c.TTL))
		if !seen[string(c.key)] {
			seen[string(c.key)] = true
			keys = append(keys, c.key)
		}
	}
	if len(keys) == 0 && time.Since(w.idle) > linger {
		w.running = false
		return nil, 0, false
	}
	return keys, mark, true
}

// beat has all ask who may be able to do more than to wait.
func (w *waiting) beat(mark time.Duration) {
	keys, _, _ := w.names()
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(w.closed, max(mark/3, time.Second))
	defer cancel()
	d := w.driver
	var missed bool
	quiet, err := queryFor(ctx, d, d.spare(), func(rows pgx.Rows) (map[string]bool, error) {
		quiet := map[string]bool{}
		var keys [][]byte
		_, err := pgx.ForEachRow(rows, []any{&missed, &keys}, func() error {
			for _, k := range keys {
				quiet[string(k)] = true
			}
			return nil
		})
		return quiet, err
	}, d.sql.beat.text, w.id, keys, mark.Microseconds())
	if err != nil || missed {
		w.wakeOthers(nil)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	first := map[string]*claim{}
	for _, c := range w.claims {
		if f := first[string(c.key)]; !quiet[string(c.key)] && (f == nil || c.place < f.place) {
			first[string(c.key)] = c
		}
	}
	for _, c := range first {
		c.Wake()
	}
}

const longestMark = 5 * time.Second

// markFor is how long a waiter counts after its Driver has been heard of.
func markFor(ttl time.Duration) time.Duration {
	return min(longestMark, max(ttl, 1500*time.Millisecond))
}

// handOver tells an owner that a request which was sent at began has handed the lock over to it:
// here, or by a notification that another Driver hears. If nobody hears it, the lock is free again
// after some seconds.
//
// A notification carries no grant: another Driver cannot tell when it was sent, so no deadline can
// count from that. The waiter asks, and its deadline counts from its own request.
func (d *backend) handOver(ctx context.Context, began time.Time, owner []byte, token, era int64) {
	if d.handOverHere(began, owner, token, era) || len(owner) != clientID+16 {
		return
	}
	_ = d.read(ctx, func() error { // twice does no harm
		_, err := d.gives.do(ctx, notify, text(channelOf(owner[:clientID])), text(hex.EncodeToString(owner)))
		return err
	})
}

// handOverHere reports whether the owner is of this Driver.
func (d *backend) handOverHere(began time.Time, owner []byte, token, era int64) bool {
	if len(owner) != clientID+16 || string(owner[:clientID]) != string(d.waiting.id) {
		return false
	}
	if c := d.waiting.get(string(owner)); c != nil {
		c.handed.Store(&grant{token: token, era: era, until: began.Add(c.TTL)})
		c.Wake()
	}
	return true
}
