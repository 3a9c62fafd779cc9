package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	mrand "math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/go-locker/locker/internal/sqllock"
)

// How a waiter learns that the lock is its own.
//
//  1. ask_v1 enqueues the owner ID at the server: the first 8 bytes name the Driver. The wait list
//     below has the same claims, from before the request is sent.
//  2. Whoever releases, or finds the hold expired, hands the lock over in that transaction (settle_v1):
//     the row names the first live waiter, which is in the queue no more.
//  3. Same Driver: the reply is the grant, if over 3/4 of the TTL is left when the claim asks; its
//     deadline counts from when the request was sent.
//     Another Driver: NOTIFY on that Driver's channel, with the owner ID. Its claim asks, and the
//     deadline counts from its own request. Until then the hold lasts 5 s at most.
//  4. beat_v1 renews the lease of all waiters of the Driver: one request, four times within the mark,
//     which is how long they count. One that comes sooner after another only reads. The reply names
//     this Driver's owners that hold what is waited for.
//
// Invariants. (1) A notification carries no grant, so one that is late, lost, repeated or forged moves
// no deadline. (2) Only a live waiter is handed the lock: one whose Driver has beaten within the mark.
// (3) No waiter depends on a notification alone: beat_v1 reads the same row that settle_v1 wrote.
//
// Lost notification: a failed NOTIFY, a full queue, a connection that was cut after the commit. The
// next beat wakes the claim that the row names: within a quarter of the mark while the listener is
// subscribed, within 200 ms while it is not, and at once when it subscribes or loses its connection.
// So a subscription needs no look by every waiter: one request stands for all.
//
// Lost reply to a beat: all claims ask, because their places may be gone. The same if the server had
// taken the Driver for dead (missed). Beats go on at the slow rate until one is answered.
//
// Expiry of a hold: no request announces it. A beat leaves out of quiet what expires within half a
// mark, and any claim of each such name asks: settle_v1 finds the first waiter, whoever asks.

const (
	clientIDLen = 8               // bytes of the prefix of an owner ID that names its Driver
	linger      = 5 * time.Second // how long a Driver stays subscribed without waiters
)

// waiting is the wait list of a Driver, and its heartbeat.
type waiting struct {
	driver *backend
	id     []byte
	look   chan struct{} // notifications may be lost: beat now
	sooner chan struct{} // a claim has a shorter mark: the next beat is due earlier

	all    sync.WaitGroup
	closed context.Context
	stop   context.CancelFunc

	mu      sync.Mutex
	claims  map[string]*claim // by owner ID
	idle    time.Time         // since when there are none
	mark    time.Duration     // of the claims in the last call of names
	running bool
}

func newWaiting(d *backend) *waiting {
	w := &waiting{
		driver: d, id: make([]byte, clientIDLen), claims: map[string]*claim{},
		look: make(chan struct{}, 1), sooner: make(chan struct{}, 1),
	}
	_, _ = rand.Read(w.id) // never fails
	w.closed, w.stop = context.WithCancel(context.Background())
	return w
}

// enter adds a claim before its first request: the lock may be handed over before the reply is read.
func (w *waiting) enter(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims[string(c.owner)] = c
	if sqllock.MarkFor(c.TTL) < w.mark {
		signal(w.sooner)
	}
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

// wakeOthers wakes all claims but one: their places in the queue may be gone.
func (w *waiting) wakeOthers(but *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.claims {
		if c != but {
			c.Wake()
		}
	}
}

// need starts the heartbeat and the listener, unless they run.
func (w *waiting) need() {
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

// signal does not wait: one that nobody has received yet stands for this one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run beats, and has the listener listen, until there have been no waiters for a while.
func (w *waiting) run() {
	ctx, cancel := context.WithCancel(w.closed)
	defer cancel()
	w.all.Go(func() { w.driver.listener.run(ctx) })
	last, counts, answered := time.Now(), sqllock.MarkFor(time.Hour), true
	for !w.over() {
		_, mark := w.names()
		pause := min(mark, counts) / 4
		if answered && !w.driver.listener.heard.Load() {
			pause = 100*time.Millisecond + mrand.N(100*time.Millisecond)
		}
		select {
		case <-time.After(time.Until(last.Add(pause))):
		case <-w.look:
		case <-w.sooner:
			continue
		case <-w.closed.Done():
			return
		}
		last, counts = time.Now(), mark
		answered = w.beat(mark)
	}
}

// over reports whether run ends. The next need starts it again.
func (w *waiting) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = len(w.claims) > 0 || time.Since(w.idle) <= linger
	return !w.running
}

// names returns the keys that have waiters, and how long a waiter counts after a beat.
func (w *waiting) names() (keys [][]byte, mark time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string]bool{}
	mark = sqllock.MarkFor(time.Hour)
	for _, c := range w.claims {
		mark = min(mark, sqllock.MarkFor(c.TTL))
		if !seen[string(c.key)] {
			seen[string(c.key)] = true
			keys = append(keys, c.key)
		}
	}
	w.mark = mark
	return keys, mark
}

// beat sends one heartbeat, if there are claims, and wakes those that its reply is about. It returns
// false if the request failed.
func (w *waiting) beat(mark time.Duration) bool {
	keys, _ := w.names()
	if len(keys) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(w.closed, max(mark/4, time.Second))
	defer cancel()
	d := w.driver
	row, err := d.query(ctx, d.spare, d.sql.beat, w.id, array(pgtype.ByteaArrayOID, keys), number(mark.Microseconds()))
	if err != nil || asTruth(row[0]) {
		w.wakeOthers(nil)
		return err == nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, owner := range asArray(row[2]) {
		if c := w.claims[string(owner)]; c != nil {
			c.Wake()
		}
	}
	done := map[string]bool{}
	for _, key := range asArray(row[1]) {
		done[string(key)] = true
	}
	for _, c := range w.claims {
		if !done[string(c.key)] {
			done[string(c.key)] = true
			c.Wake()
		}
	}
	return true
}

// handOver tells an owner that a request sent at began has handed the lock over to it: here, or by
// a notification. See the head of this file.
func (d *backend) handOver(ctx context.Context, began time.Time, owner []byte, token, era int64) {
	if !d.handOverHere(began, owner, token, era) && len(owner) == clientIDLen+16 {
		_, _ = d.gives.do(ctx, notify, []byte(channelOf(owner[:clientIDLen])), []byte(hex.EncodeToString(owner)))
	}
}

// owns reports whether an owner is a claim of this Driver.
func (d *backend) owns(owner []byte) bool {
	return len(owner) == clientIDLen+16 && bytes.HasPrefix(owner, d.waiting.id)
}

// handOverHere grants a claim of this Driver the lock, and reports whether the owner is one.
func (d *backend) handOverHere(began time.Time, owner []byte, token, era int64) bool {
	if c := d.waiting.get(string(owner)); c != nil {
		c.handed.Store(&grant{token: token, era: era, until: began.Add(c.TTL)})
		c.Wake()
	}
	return d.owns(owner)
}
