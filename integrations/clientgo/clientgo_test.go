package clientgo_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/integrations/clientgo"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = testwait.Patience(time.Minute)

var eventually = patience.Until

// candidate is a run of client-go's election.
type candidate struct {
	cancel context.CancelFunc
	ended  chan struct{}

	token          atomic.Uint64 // set before began
	began, stopped atomic.Int32
}

// long is a LeaseDuration that does not end by itself, also where the machine stands still.
const long = 5 * time.Minute

func open(t *testing.T, url string) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.Open(t.Context(), url))(t)
}

func newLock(t *testing.T, url, identity string) *clientgo.Lock {
	t.Helper()
	l, err := clientgo.New(open(t, url), "election", identity)
	require.NoError(t, err)
	return l
}

// run begins an election by something over lock.
func run(t *testing.T, lock *clientgo.Lock, by resourcelock.Interface, duration time.Duration, release bool) *candidate {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &candidate{cancel: cancel, ended: make(chan struct{})}
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: by, LeaseDuration: duration, RenewDeadline: duration * 2 / 3, RetryPeriod: 50 * time.Millisecond, ReleaseOnCancel: release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				if lock != nil { // else it leads over a Lease
					if h := lock.Hold(); h != nil {
						c.token.Store(h.Token())
					}
				}
				c.began.Add(1)
			},
			OnStoppedLeading: func() { c.stopped.Add(1) },
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

func (c *candidate) leads() bool { return c.began.Load() > 0 }

func TestElection_releaseOnCancel(t *testing.T) {
	url := "mem://" + t.Name()
	first := newLock(t, url, "first")
	a := run(t, first, first, long, true)
	eventually(t, "the first leads", a.leads)
	second := newLock(t, url, "second")
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "second", LeaseDurationSeconds: 1}
	created := testwait.Go(func() error { return second.Create(t.Context(), record) })
	require.ErrorIs(t, patience.Result(t, created), locker.ErrHeld, "it does not wait: the election asks again")
	b := run(t, second, second, long, true)
	eventually(t, "the second has seen who leads", func() bool {
		r, _, err := second.Get(t.Context())
		return err == nil && r.HolderIdentity == "first"
	})
	assert.False(t, b.leads())
	a.stop()
	eventually(t, "the second leads", b.leads)
	assert.Greater(t, b.token.Load(), a.token.Load())
	b.stop()
	_, _, err := first.Get(t.Context())
	assert.ErrorContains(t, err, "not found", "nobody leads")
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
	assert.Greater(t, b.token.Load(), a.token.Load())
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
	assert.EqualValues(t, 1, c.began.Load())
	assert.EqualValues(t, 1, c.stopped.Load())
	state, err = operator.Inspect(t.Context(), "election")
	require.NoError(t, err)
	assert.False(t, state.Held)
}

// However a term ends, the context of its hold ends before another leads.
func TestElection_theContextOfATermEnds(t *testing.T) {
	for _, release := range []bool{true, false} {
		for _, end := range []func(*candidate, *troubled){
			func(c *candidate, _ *troubled) { c.cancel() },
			func(_ *candidate, f *troubled) { f.fails.Store(true) }, // until RenewDeadline
		} {
			url := "mem://" + t.Name()
			lock := newLock(t, url, "first")
			by := &troubled{Interface: lock}
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

// troubled is a lock whose process stands still from Lock to Unlock, before its next request, and
// whose renewals fail, once they are to.
type troubled struct {
	resourcelock.Interface
	sync.RWMutex
	fails atomic.Bool
}

func (p *troubled) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	p.RLock()
	defer p.RUnlock()
	return p.Interface.Get(ctx)
}

func (p *troubled) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	p.RLock()
	defer p.RUnlock()
	if p.fails.Load() && r.HolderIdentity != "" {
		return errors.New("not answered")
	}
	return p.Interface.Update(ctx, r)
}

// A leader is paused until another leads, and then releases: that does not end the other's term.
func TestElection_aLateReleaseIsNotAnothers(t *testing.T) {
	const duration = 3 * time.Second
	url := "mem://" + t.Name()
	first := newLock(t, url, "first")
	by := &troubled{Interface: first}
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
	assert.Equal(t, b.token.Load(), state.Token)
	assert.NotNil(t, second.Hold())
}

// lease is a fake API for one Lease. It refuses a change of an outdated version, as the API server
// does.
type lease struct {
	typedv1.LeaseInterface

	mu      sync.Mutex
	changes int
	now     coordinationv1.Lease
}

func (l *lease) Leases(string) typedv1.LeaseInterface { return l }

func (l *lease) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes == 0 {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), name)
	}
	return l.now.DeepCopy(), ctx.Err()
}

func (l *lease) Create(ctx context.Context, want *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.Update(ctx, want, metav1.UpdateOptions{})
}

func (l *lease) Update(ctx context.Context, want *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if want.ResourceVersion != l.now.ResourceVersion {
		return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), want.Name, nil)
	}
	if ctx.Err() == nil {
		l.changes++
		want.DeepCopyInto(&l.now)
		l.now.ResourceVersion = strconv.Itoa(l.changes)
	}
	return l.now.DeepCopy(), ctx.Err()
}

func (l *lease) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.now.Spec.HolderIdentity
}

// The same with client-go's own LeaseLock: the release of the first reads the second's Lease, and
// frees it, because it asks its own memory whether it leads. A third may then lead beside the
// second.
func TestLease_aLateReleaseFreesAnothers(t *testing.T) {
	kept := &lease{}
	candidateOf := func(who string, duration time.Duration) (*troubled, *candidate) {
		p := &troubled{Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: "election"}, Client: kept,
			LockConfig: resourcelock.ResourceLockConfig{Identity: who},
		}}
		return p, run(t, nil, p, duration, true)
	}
	first, a := candidateOf("first", 3*time.Second)
	eventually(t, "the first leads", a.leads)
	first.Lock()
	second, b := candidateOf("second", long)
	eventually(t, "the second leads", b.leads)
	second.Lock() // until it renews it does not know
	defer second.Unlock()
	assert.Equal(t, "second", kept.holder())
	first.Unlock()
	<-a.ended
	assert.Empty(t, kept.holder(), "the second leads, and its Lease is free")
}
