// Package recipes tests, on any backend, whether packages election, semaphore, multi and keyed, and
// List and ForceRelease of a Client, keep their promises.
//
// The packages use the public API alone. So a backend that passes package conformance should pass
// here, too; these scenarios show that it does.
//
//	func TestRecipes(t *testing.T) {
//		recipes.Run(t, recipes.Harness{TTL: time.Second, Client: func(t testing.TB, opts ...locker.Option) *locker.Client {
//			c, err := locker.Open(t.Context(), "redis://localhost:6379", opts...)
//			…
//		}})
//	}
package recipes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-locker/locker"
)

// Harness tells the suite how to make a Client of the backend.
type Harness struct {
	// Client makes a Client as a process of its own would have it, with connections of its own, and
	// closes it in a Cleanup function of t. The Client has the options opts, which include a TTL.
	// Several goroutines call it at the same time.
	Client func(t testing.TB, opts ...locker.Option) *locker.Client

	// TTL is the shortest that the backend honours. Scenarios ask for multiples of it, too.
	TTL time.Duration

	// StopServers, optional, makes the servers stop answering until resume is called. Connections
	// stay open.
	StopServers func(t testing.TB) (resume func())
}

// scenario is one promise, and the check that it is kept.
type scenario struct {
	name     string
	promise  string
	disturbs bool // it needs StopServers
	check    func(e *env) error
}

func scenarios() []scenario {
	return slices.Concat(electionScenarios, semaphoreScenarios, multiScenarios, keyedScenarios, operatorScenarios)
}

// Run puts each package through its scenarios, as subtests. A failure names the promise that was
// broken, and what was seen. A scenario that needs what the Harness or the backend lacks is
// skipped. Those that stop servers come last.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, disturbs := range []bool{false, true} {
		t.Run(map[bool]string{false: "undisturbed", true: "servers stop"}[disturbs], func(t *testing.T) {
			for _, s := range scenarios() {
				if s.disturbs != disturbs {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					if !disturbs {
						t.Parallel()
					}
					s.run(t, h)
				})
			}
		})
	}
}

func (s scenario) run(t testing.TB, h Harness) {
	t.Helper()
	if s.disturbs && h.StopServers == nil {
		t.Skip("the Harness has no StopServers")
	}
	err := s.check(&env{t, h, longest / 2, longest})
	switch {
	case errors.Is(err, errSkip):
		t.Skip(err)
	case err != nil:
		t.Fatalf("broken: %s\nseen: %v", s.promise, err)
	}
}

// env is what a scenario has.
type env struct {
	testing.TB
	Harness

	patient time.Duration // how long it waits for what has to come: longer than the machine is ever busy
	long    time.Duration // the TTL of holds that are not to end by themselves meanwhile
}

// longest is a TTL that ZooKeeper's servers do not refuse, unless they are told to.
const longest = 36 * time.Second

// recovery is how long servers that were stopped, and their clients, may take until they work together again.
const recovery = 2 * time.Minute

// errSkip is matched by the error of a scenario that could not run.
var errSkip = errors.New("skipped")

// client makes a Client whose holds last ttl.
func (e *env) client(ttl time.Duration, opts ...locker.Option) *locker.Client {
	e.Helper()
	return e.Client(e.TB, append([]locker.Option{locker.WithTTL(ttl)}, opts...)...)
}

// fresh returns a name that nobody uses.
func (e *env) fresh(what string) string { return fmt.Sprintf("%s-%x", what, rand.Uint64()) }

// within returns a context that ends after d.
func (e *env) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(e.Context(), d)
	e.Cleanup(cancel)
	return ctx
}

// answers waits until the servers, which were stopped, serve c again.
func (e *env) answers(c *locker.Client) error {
	h, err := insist(e.within(recovery), c.Mutex(e.fresh("back")).Acquire)
	if err != nil {
		return fmt.Errorf("the servers are back: %w", err)
	}
	return h.Unlock(e.Context())
}

// persist is insist for as long as a busy machine may need.
func persist[H any](e *env, take func(context.Context) (H, error)) (H, error) {
	return insist(e.within(e.patient), take)
}

// insist calls take until it succeeds, or ctx ends, and returns the last error: on a busy machine a request may take too long.
func insist[H any](ctx context.Context, take func(context.Context) (H, error)) (H, error) {
	for {
		h, err := take(ctx)
		if err == nil || ctx.Err() != nil {
			return h, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// free returns an error unless each of names can be taken before a hold that was left behind would expire.
func (e *env) free(c *locker.Client, names ...string) error {
	for _, name := range names {
		h, err := persist(e, c.Mutex(name).Acquire)
		if err == nil {
			err = h.Unlock(e.Context())
		}
		if err != nil {
			return fmt.Errorf("%q is not free: %w", name, err)
		}
	}
	return nil
}
