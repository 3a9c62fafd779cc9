// Package kubernetes_test has client-go's leader election beside a lock of ours, on one API server:
// what they ask for, and how soon another leads.
package kubernetes_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/kubernetes"
)

func TestMain(m *testing.M) { testserver.Tests(m).Run() }

// client-go's defaults, and a TTL that is the same.
const (
	duration = 15 * time.Second
	deadline = 10 * time.Second
	retry    = 2 * time.Second
)

var eventually = testwait.Patience(3 * time.Minute).Until

// counts are requests by kind.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) add(r *http.Request) {
	kind := r.Method
	if r.URL.Query().Has("watch") {
		kind = "watch"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[kind]++
	c.of["all"]++
}

// take returns what was counted, and begins again.
func (c *counts) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.of
	c.of = map[string]int{}
	return was
}

type counted struct {
	http.RoundTripper
	counts *counts
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.counts.add(r)
	return c.RoundTripper.RoundTrip(r)
}

// connect makes a clientset that counts. client-go speaks HTTP/2 by itself, and locker HTTP/1.1.
func connect(t *testing.T, s *testserver.KubeServer, c *counts, protocols ...string) *clientset.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig(testserver.KubeAdmin))
	require.NoError(t, err)
	config.NextProtos = protocols
	config.QPS = -1
	config.Wrap(func(by http.RoundTripper) http.RoundTripper { return counted{by, c} })
	cs, err := clientset.NewForConfig(config)
	require.NoError(t, err)
	return cs
}

// field is candidates for one lock. leads gets each that leads, which goes on until it is released,
// or dies.
type field struct {
	leads chan *leader
	stop  context.CancelFunc
	wait  sync.WaitGroup
}

// end has all of them give up.
func (f *field) end() {
	f.stop()
	f.wait.Wait()
}

type leader struct {
	who          int
	release, die func()
}

// leaders begins n candidates of client-go.
func leaders(t *testing.T, cs *clientset.Clientset, name string, n int) *field {
	t.Helper()
	all, stop := context.WithCancel(t.Context())
	f := &field{leads: make(chan *leader, n), stop: stop}
	t.Cleanup(f.end)
	for i := range n {
		ctx, cancel := context.WithCancel(all)
		lock := &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Client: cs.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprint("candidate", i)},
		}
		mute := &mutable{Interface: lock}
		e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: mute, LeaseDuration: duration, RenewDeadline: deadline, RetryPeriod: retry, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					f.leads <- &leader{who: i, release: cancel, die: func() { mute.mute(); cancel() }}
				},
				OnStoppedLeading: func() {},
			},
		})
		require.NoError(t, err)
		f.wait.Go(func() { e.Run(ctx) })
	}
	return f
}

// mutable is a lock that sends nothing any more when it is muted, as that of a process that died.
type mutable struct {
	resourcelock.Interface
	mu    sync.Mutex
	muted bool
}

func (m *mutable) mute() { m.mu.Lock(); m.muted = true; m.mu.Unlock() }

func (m *mutable) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.muted {
		return nil, nil, context.Canceled
	}
	return m.Interface.Get(ctx)
}

// lockers begins n candidates for a lock of ours, each with a Client of its own.
func lockers(t *testing.T, client rest.Interface, name string, n int) *field {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	f := &field{leads: make(chan *leader, n), stop: stop}
	t.Cleanup(f.end)
	for i := range n {
		c, err := kubernetes.New(client, "default", locker.WithTTL(duration))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		m := c.Mutex(name)
		f.wait.Go(func() {
			h, err := m.Acquire(ctx)
			for err != nil && ctx.Err() == nil { // the machine is too busy
				h, err = m.Acquire(ctx)
			}
			if err != nil {
				return
			}
			f.leads <- &leader{
				who: i, release: func() { _ = h.Unlock(context.WithoutCancel(ctx)) }, die: func() { _ = h.Abandon() },
			}
		})
	}
	return f
}

func (f *field) next(t *testing.T) (l *leader) {
	t.Helper()
	eventually(t, "one leads", func() bool {
		select {
		case l = <-f.leads:
			return true
		default:
			return false
		}
	})
	return l
}

// A hundred candidates: what they ask for in a minute in which nothing happens, how soon the next
// one leads after a release and after a crash, and what that costs.
func TestElections_sideBySide(t *testing.T) {
	testwait.OnlyNightly(t, "it takes minutes, and a server that make setup-nightly builds")
	s := testserver.SharedKube(t)
	const candidates = 100
	idle := map[string]int{}
	var lines []string
	for _, by := range []string{"client-go", "locker"} {
		c := &counts{of: map[string]int{}}
		var f *field
		if by == "locker" {
			f = lockers(t, connect(t, s, c, "http/1.1").CoordinationV1().RESTClient(), "beside", candidates)
		} else {
			f = leaders(t, connect(t, s, c), "beside", candidates)
		}
		l := f.next(t)
		time.Sleep(2 * duration / 3) // all have come
		c.take()
		time.Sleep(time.Minute)
		quiet := c.take()
		idle[by] = quiet["all"]
		handOver := func(end func(*leader), rounds int) string {
			var took []time.Duration
			c.take()
			for range rounds {
				began := time.Now()
				end(l)
				l = f.next(t)
				took = append(took, time.Since(began).Round(time.Millisecond))
				time.Sleep(100 * time.Millisecond)
			}
			asked := c.take()
			slices.Sort(took)
			return fmt.Sprintf("%v, %v at most; %d requests each, %d of them writes", took[len(took)/2], took[len(took)-1], asked["all"]/rounds, asked["PUT"]/rounds)
		}
		lines = append(lines,
			fmt.Sprintf("%s: a minute: %v", by, quiet),
			fmt.Sprintf("%s: after each of the first five releases: %s", by, handOver(func(l *leader) { l.release() }, 5)),
			fmt.Sprintf("%s: after a release: %s", by, handOver(func(l *leader) { l.release() }, 10)),
			fmt.Sprintf("%s: after a crash: %s", by, handOver(func(l *leader) { l.die() }, 3)))
		l.release()
		f.end()
	}
	t.Log("\n" + strings.Join(lines, "\n"))
	assert.Less(t, idle["locker"], idle["client-go"]/10, "requests a minute")
}
