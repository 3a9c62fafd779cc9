package clientgo_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
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

// run begins an election by something over lock, or over a Lease, where lock is nil.
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
				if lock == nil {
					return
				}
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

// failing is a lock whose renewals fail, once they are to.
type failing struct {
	resourcelock.Interface
	fails atomic.Bool
}

func (f *failing) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if f.fails.Load() && r.HolderIdentity != "" {
		return errors.New("not answered")
	}
	return f.Interface.Update(ctx, r)
}

// However a term ends, the context of its hold ends before another leads.
func TestElection_theContextOfATermEnds(t *testing.T) {
	for _, release := range []bool{true, false} {
		for _, end := range []func(*candidate, *failing){
			func(c *candidate, _ *failing) { c.cancel() },
			func(_ *candidate, f *failing) { f.fails.Store(true) }, // until RenewDeadline
		} {
			url := "mem://" + t.Name()
			lock := newLock(t, url, "first")
			by := &failing{Interface: lock}
			c := run(t, lock, by, 3*time.Second, release)
			eventually(t, "it leads", c.leads)
			work, done := lock.Hold().Context(t.Context(), 0)
			end(c, by)
			second := open(t, url).Mutex("election")
			require.NoError(t, second.Lock(t.Context()))
			require.Error(t, work.Err())
			<-c.ended
			require.NoError(t, second.Unlock(t.Context()))
			done()
		}
	}
}

// paused is a lock whose process stands still from Lock to Unlock, before its next request.
type paused struct {
	resourcelock.Interface
	sync.RWMutex
}

func (p *paused) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	p.RLock()
	defer p.RUnlock()
	return p.Interface.Get(ctx)
}

func (p *paused) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	p.RLock()
	defer p.RUnlock()
	return p.Interface.Update(ctx, r)
}

// A leader stands still until another leads, and releases when it goes on: the other's term is not
// its own. TestLease_aLateReleaseFreesAnothers shows what becomes of that with a Lease.
func TestElection_aLateReleaseIsNotAnothers(t *testing.T) {
	const duration = 3 * time.Second
	url := "mem://" + t.Name()
	first := newLock(t, url, "first")
	by := &paused{Interface: first}
	a := run(t, first, by, duration, true)
	eventually(t, "the first leads", a.leads)
	by.Lock()
	second := newLock(t, url, "second")
	b := run(t, second, second, long, true)
	eventually(t, "the second leads", b.leads)
	by.Unlock()
	<-a.ended
	state, err := open(t, url).Inspect(t.Context(), "election")
	require.NoError(t, err)
	assert.True(t, state.Held)
	assert.Equal(t, "second", state.Holder.Metadata)
	assert.Equal(t, b.tokenOf(), state.Token)
	assert.NotNil(t, second.Hold())
}

// With a Lease the release of the first reads that of the second, and frees it, because it asks its
// own memory whether it leads. The second still does, and a third may lead beside it.
func TestLease_aLateReleaseFreesAnothers(t *testing.T) {
	testwait.OnlyNightly(t, "it takes a server that make setup-nightly builds")
	client, err := coordinationv1.NewForConfig(&rest.Config{
		Host: testserver.SharedKube(t).Addr(), BearerToken: testserver.KubeAdmin, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	})
	require.NoError(t, err)
	candidateOf := func(who string, duration time.Duration) (*paused, *candidate) {
		p := &paused{Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: "late-release", Namespace: "default"}, Client: client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: who},
		}}
		return p, run(t, nil, p, duration, true)
	}
	first, a := candidateOf("first", 5*time.Second)
	eventually(t, "the first leads", a.leads)
	first.Lock()
	second, b := candidateOf("second", 5*time.Minute)
	eventually(t, "the second leads", b.leads)
	second.Lock() // until it renews it does not know
	defer second.Unlock()
	holder := func() string {
		l, err := client.Leases("default").Get(t.Context(), "late-release", metav1.GetOptions{})
		require.NoError(t, err)
		return *l.Spec.HolderIdentity
	}
	assert.Equal(t, "second", holder())
	first.Unlock()
	<-a.ended
	assert.Empty(t, holder(), "the second leads, and its Lease is free")
}
