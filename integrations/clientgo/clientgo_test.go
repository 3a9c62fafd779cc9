package clientgo_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/integrations/clientgo"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
	_ "github.com/go-locker/locker/redis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Tests(m)) }

var eventually = testwait.Patience(time.Minute).Until

// candidate is a run of client-go's election.
type candidate struct {
	lock   *clientgo.Lock
	cancel context.CancelFunc
	ended  chan struct{}

	mu             sync.Mutex
	began, stopped int
	token          uint64
}

// long is a LeaseDuration that does not end by itself, also where the machine stands still.
const long = 30 * time.Second

func open(t *testing.T, url string) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newLock(t *testing.T, url, identity string) *clientgo.Lock {
	t.Helper()
	l, err := clientgo.New(open(t, url), "election", identity)
	require.NoError(t, err)
	return l
}

// run begins an election by lock, which may be a *clientgo.Lock in something else.
func run(t *testing.T, lock *clientgo.Lock, by resourcelock.Interface, duration time.Duration, release bool) *candidate {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &candidate{lock: lock, cancel: cancel, ended: make(chan struct{})}
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: by, LeaseDuration: duration, RenewDeadline: duration * 2 / 3, RetryPeriod: 50 * time.Millisecond, ReleaseOnCancel: release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.began++
				if h := lock.Hold(); h != nil {
					c.token = h.Token()
				}
			},
			OnStoppedLeading: func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.stopped++
			},
		},
	})
	require.NoError(t, err)
	go func() {
		defer close(c.ended)
		e.Run(ctx)
	}()
	t.Cleanup(c.stop)
	return c
}

func (c *candidate) stop() {
	c.cancel()
	<-c.ended
}

func (c *candidate) leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.began > 0
}

func (c *candidate) tokenOf() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

func TestElection_releaseOnCancel(t *testing.T) {
	for _, url := range []string{"mem://" + t.Name(), ""} {
		if url == "" {
			testwait.OnlyNightly(t, "the memory backend shows the same")
			url = testserver.SharedRedis(t).URL()
		}
		first := newLock(t, url, "first")
		a := run(t, first, first, long, true)
		eventually(t, "the first leads", a.leads)
		second := newLock(t, url, "second")
		b := run(t, second, second, long, true)
		eventually(t, "the second has seen who leads", func() bool {
			r, _, err := second.Get(t.Context())
			return err == nil && r.HolderIdentity == "first"
		})
		assert.False(t, b.leads())
		began := time.Now()
		a.stop()
		eventually(t, "the second leads", b.leads)
		assert.Less(t, time.Since(began), long, "it need not wait for the expiry")
		assert.Greater(t, b.tokenOf(), a.tokenOf())
		b.stop()
		_, _, err := first.Get(t.Context())
		assert.ErrorContains(t, err, "not found", "nobody leads")
	}
}

// Without ReleaseOnCancel a leader that has ended is followed when its TTL is over.
func TestElection_expiry(t *testing.T) {
	const duration = 2 * time.Second
	url := "mem://" + t.Name()
	first, second := newLock(t, url, "first"), newLock(t, url, "second")
	a := run(t, first, first, duration, false)
	eventually(t, "the first leads", a.leads)
	a.stop()
	b := run(t, second, second, duration, false)
	eventually(t, "the second leads", b.leads)
	assert.Greater(t, b.tokenOf(), a.tokenOf())
	b.stop()
	again := run(t, first, first, duration, true)
	eventually(t, "the first leads in another run", again.leads)
}

// A leader whose hold was ended by an operator stops, and does not lead again in the same run,
// though nobody else wants to.
func TestElection_aLostTermIsOver(t *testing.T) {
	url := "mem://" + t.Name()
	lock := newLock(t, url, "first")
	c := run(t, lock, lock, 3*time.Second, true)
	eventually(t, "it leads", c.leads)
	operator := open(t, url)
	state, err := operator.Inspect(t.Context(), "election")
	require.NoError(t, err)
	assert.Equal(t, "first", state.Holder.Metadata)
	require.NoError(t, operator.ForceRelease(t.Context(), "election", state))
	<-c.ended
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Equal(t, 1, c.began)
	assert.Equal(t, 1, c.stopped)
	state, err = operator.Inspect(t.Context(), "election")
	require.NoError(t, err)
	assert.False(t, state.Held)
}

// paused is a lock whose process stands still when told to, in the middle of a request.
type paused struct {
	resourcelock.Interface

	mu    sync.Mutex
	stand chan struct{} // closed when it goes on
}

func (p *paused) pause() (goOn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stand := make(chan struct{})
	p.stand = stand
	return func() { close(stand) }
}

func (p *paused) wait() {
	p.mu.Lock()
	stand := p.stand
	p.mu.Unlock()
	if stand != nil {
		<-stand
	}
}

func (p *paused) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	p.wait()
	return p.Interface.Get(ctx)
}

func (p *paused) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	p.wait()
	return p.Interface.Update(ctx, r)
}

// A leader stands still until another leads, and releases when it goes on: the other's term is not
// its own. TestLease_evicts shows what becomes of that with a Lease.
func TestElection_aLateReleaseIsNotAnothers(t *testing.T) {
	const duration = 3 * time.Second
	url := "mem://" + t.Name()
	first := newLock(t, url, "first")
	by := &paused{Interface: first}
	a := run(t, first, by, duration, true)
	eventually(t, "the first leads", a.leads)
	goOn := by.pause()
	second := newLock(t, url, "second")
	b := run(t, second, second, long, true)
	eventually(t, "the second leads", b.leads)
	goOn()
	<-a.ended
	state, err := open(t, url).Inspect(t.Context(), "election")
	require.NoError(t, err)
	assert.True(t, state.Held)
	assert.Equal(t, "second", state.Holder.Metadata)
	assert.Equal(t, b.tokenOf(), state.Token)
	assert.NotNil(t, second.Hold())
}
