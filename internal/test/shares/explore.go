package shares

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/driver"
)

// record is who holds, as those who hold say.
type record struct {
	t testing.TB

	mu              sync.Mutex
	writers         int
	shares          map[driver.Lease]uint64
	last            uint64 // the largest token that a writer had
	phase           uint64 // the token of the shares since
	grants, differs int
}

func (r *record) granted(l driver.Lease, shared bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	token := l.Token()
	r.grants++
	if !shared {
		assert.Zero(r.t, r.writers, "two writers")
		assert.Empty(r.t, r.shares, "a writer beside shares")
		assert.Greater(r.t, token, max(r.last, r.phase), "the token of a writer")
		r.writers, r.last, r.phase = 1, token, 0
		return
	}
	assert.Zero(r.t, r.writers, "a share beside a writer")
	assert.Greater(r.t, token, r.last, "the token of a share")
	for _, other := range r.shares {
		assert.Equal(r.t, other, token, "tokens of shares at the same time")
	}
	if r.phase != 0 && r.phase != token {
		r.differs++
	}
	r.phase = max(r.phase, token)
	r.shares[l] = token
}

// downgraded is called before and after the writer downgrades.
func (r *record) downgraded(l driver.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writers, r.phase, r.last = 0, l.Token(), l.Token()-1
	r.shares[l] = l.Token()
}

// ends is called before l does.
func (r *record) ends(l driver.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.shares[l]; ok {
		delete(r.shares, l)
		return
	}
	r.writers = 0
}

// Explore has many contend at random for a while, of whom some give up, some downgrade, and some die at any step.
func (b Backend) Explore(t *testing.T, duration time.Duration) {
	r := &record{t: t, shares: map[driver.Lease]uint64{}}
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var processes sync.WaitGroup
	for range 3 {
		processes.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				b.process(ctx, t, r)
			}
		})
	}
	processes.Wait()
	t.Logf("%d grants; %d shares had another token than one that had ended, without a writer in between", r.grants, r.differs)
	assert.Greater(t, r.grants, 10)
	eventually(t, "nothing is left", func() bool { return len(b.Queue(t)) == 0 })
}

// process has some contend with one Driver until that is closed.
func (b Backend) process(ctx context.Context, t *testing.T, r *record) {
	d := b.Open(t)
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond+rand.N(2*time.Second))
	defer cancel()
	var contenders sync.WaitGroup
	for range 4 {
		contenders.Go(func() {
			for ctx.Err() == nil {
				b.contend(ctx, t, d, r)
			}
		})
	}
	<-ctx.Done()
	_ = d.Close()
	contenders.Wait()
}

func (b Backend) contend(ctx context.Context, t testing.TB, d Driver, r *record) {
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), rand.N(300*time.Millisecond))
	defer cancel()
	shared := rand.N(4) > 0
	var l driver.Lease
	var err error
	switch try := rand.N(3) == 0; {
	case shared && try:
		l, err = d.AcquireShared(patience, b.request())
	case shared:
		l, err = d.AcquireSharedQueued(patience, b.request(), func(error) {})
	case try:
		l, err = d.Acquire(patience, b.request())
	default:
		l, err = d.AcquireQueued(patience, b.request(), func(error) {})
	}
	if err != nil {
		if l != nil {
			b.release(l)
		}
		return
	}
	r.granted(l, shared)
	time.Sleep(rand.N(5 * time.Millisecond))
	if dg, ok := l.(driver.Downgrader); ok && !shared && rand.N(3) == 0 {
		r.downgraded(l)
		if err := dg.Downgrade(context.WithoutCancel(ctx)); err != nil {
			assert.Error(t, ctx.Err(), "only a process that dies fails to downgrade: %v", err)
		}
		time.Sleep(rand.N(5 * time.Millisecond))
	}
	r.ends(l)
	b.release(l)
}

func (b Backend) release(l driver.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Release(ctx)
}
