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
	writer          driver.Lease
	shares          map[driver.Lease]uint64
	of              map[driver.Lease]Driver
	dead            map[Driver]bool
	last            uint64 // the largest token that a writer had
	phase           uint64 // the token of the shares since
	grants, differs int
}

func (r *record) granted(l driver.Lease, d Driver, shared bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead[d] {
		return
	}
	token := l.Token()
	r.grants++
	r.of[l] = d
	assert.Nil(r.t, r.writer, "somebody holds beside a writer")
	assert.Greater(r.t, token, r.last, "the token after that of a writer")
	if !shared {
		assert.Empty(r.t, r.shares, "a writer beside shares")
		assert.Greater(r.t, token, r.phase, "the token of a writer")
		r.writer, r.last, r.phase = l, token, 0
		return
	}
	for _, other := range r.shares {
		assert.Equal(r.t, other, token, "tokens of shares at the same time")
	}
	if r.phase != 0 && r.phase != token {
		r.differs++
	}
	r.phase = max(r.phase, token)
	r.shares[l] = token
}

// downgrades is called before the writer does.
func (r *record) downgrades(l driver.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writer == l {
		r.writer, r.phase, r.last = nil, l.Token(), l.Token()-1
		r.shares[l] = l.Token()
	}
}

// ends is called before l does.
func (r *record) ends(l driver.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(l)
}

func (r *record) remove(l driver.Lease) {
	delete(r.shares, l)
	delete(r.of, l)
	if r.writer == l {
		r.writer = nil
	}
}

// dies is called before d is closed, and its holds end.
func (r *record) dies(d Driver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead[d] = true
	for l, of := range r.of {
		if of == d {
			r.remove(l)
		}
	}
}

func (r *record) fewer(grants int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grants < grants
}

// explore has many contend at random until so many leases were granted. Of them some give up, some downgrade, and some die at any step.
func (b Backend) explore(t *testing.T, grants int) {
	r := &record{t: t, shares: map[driver.Lease]uint64{}, of: map[driver.Lease]Driver{}, dead: map[Driver]bool{}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var processes sync.WaitGroup
	for range 3 {
		processes.Go(func() {
			for ctx.Err() == nil && !t.Failed() && r.fewer(grants) {
				b.process(ctx, t, r)
			}
		})
	}
	processes.Wait()
	t.Logf("%d grants; %d shares had another token than one that had ended, without a writer in between", r.grants, r.differs)
	assert.False(t, r.fewer(grants), "a minute was enough for %d grants", r.grants)
	eventually(t, "nothing is left", func() bool { return len(b.Queue(t)) == 0 })
}

// process has some contend with one Driver until that is closed.
func (b Backend) process(ctx context.Context, t *testing.T, r *record) {
	d := b.open(t)
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
	r.dies(d)
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
	r.granted(l, d, shared)
	time.Sleep(rand.N(5 * time.Millisecond))
	if dg, ok := l.(driver.Downgrader); ok && !shared && rand.N(3) == 0 {
		r.downgrades(l)
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
