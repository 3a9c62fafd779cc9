package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/ground"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/target"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/backends"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/stdio"
)

// examiner runs scenarios on the locks of a deployment, or of a program.
type examiner struct {
	title   string
	prefix  string
	ttl     time.Duration
	harness conformance.Harness
	// warnings are about settings of the servers that can break promises.
	warnings []string
	bounds   string // of the load, or ""

	begin   func(conformance.Scenario)
	probe   func(context.Context) error // locks and unlocks something
	cleanUp func(after error) string    // returns what stays, or ""
	advice  map[string]string           // on a broken promise, by what its scenario needs
}

// groundExaminer runs them on a deployment.
type groundExaminer struct {
	*ground.Ground
	ttl     time.Duration
	clients clients
}

// newExaminer fails if the deployment cannot be reached, or does not honour the TTL.
func newExaminer(ctx context.Context, url string, o *Options) (*examiner, error) {
	if o.Clients <= faulty {
		return nil, outcome.Usagef("--clients: must be %d or more: a scenario may need that many, as processes or behind proxies", faulty+1)
	}
	g := &groundExaminer{Ground: ground.New(url, o.Prefix, "check"), clients: clients{most: o.Clients, room: o.Clients}}
	var connections int
	g.Deployment, connections = bounded(g.Deployment)
	b, _ := backends.Of(g.Scheme)
	g.ttl = cmp.Or(o.TTL, b.ShortTTL)
	e := &examiner{title: g.String(), prefix: g.Prefix, ttl: g.ttl, probe: g.probe, cleanUp: g.CleanUp, begin: g.clients.begin}
	e.bounds = fmt.Sprintf("at most %d clients at once", o.Clients)
	if connections > 0 {
		e.bounds += fmt.Sprintf(", each with %d connections at most", connections)
	}
	// The user's URL, so that an error is about that.
	c, err := target.Open(ctx, url, locker.WithTTL(e.ttl))
	if err != nil {
		return nil, err
	}
	of := func(t conformance.TB, url string, ttl time.Duration, renew bool) func(string) locker.Locker {
		c := openClient(t, url, g.Prefix)
		return func(name string) locker.Locker { return c.Mutex(g.Name(name), mutexOptions(ttl, renew)...) }
	}
	shared := func(t conformance.TB) *locker.Client { // one of its own, if there is room for another
		return g.clients.get(t, func() *locker.Client { return openClient(t, g.OwnURL(), g.Prefix) })
	}
	e.harness = conformance.Harness{
		TTL: e.ttl, Promises: c.Guarantees(),
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return shared(t).Mutex(g.Name(name), mutexOptions(ttl, false)...)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			return of(t, g.OwnURL(), ttl, renew)
		},
	}
	e.warnings, _ = c.Warnings(ctx) // whether the servers answer is seen below
	if err := c.Close(); err != nil {
		return nil, err
	}
	g.Prepare(ctx)
	if g.Kind() == "zookeeper" {
		e.harness.Sometimes = knownbreaks.ZooKeeper()
	}
	if g.Addresses() != nil {
		e.harness.Faults.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
			return openClient(t, g.urlThrough(via), g.Prefix).RWMutex(g.Name(name), mutexOptions(ttl, false)...)
		}
		e.harness.Faults.ThroughClient = func(t conformance.TB, ttl time.Duration, renew bool, via func(string) string) func(string) locker.Locker {
			return of(t, g.urlThrough(via), ttl, renew)
		}
	}
	if self, err := os.Executable(); err == nil && g.Kind() != "mem" && runtime.GOOS != "windows" { // which stops no processes
		e.harness.Faults.Process = func(conformance.TB) *exec.Cmd {
			cmd := exec.Command(self, "serve-lock", "--prefix", g.Prefix, "--ttl", g.ttl.String(), "-")
			// AddressEnv may be set in our environment.
			cmd.Env = append(os.Environ(), target.Env+"="+g.OwnURL(), stdio.AddressEnv+"=")
			return cmd
		}
	}
	shares := false
	err = e.probe(ctx)
	if err == nil {
		shares, err = g.hasShares(ctx)
	}
	if err != nil {
		_ = g.CleanUp(err)
		return nil, err
	}
	if shares {
		e.harness.RW = func(t conformance.TB, name string, ttl time.Duration) conformance.RWLocker {
			return shared(t).RWMutex(g.Name(name), mutexOptions(ttl, false)...)
		}
	}
	return e, nil
}

// hasShares reports whether the backend has read-write locks.
func (e *groundExaminer) hasShares(ctx context.Context) (bool, error) {
	c, err := e.Open(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }()
	return !errors.Is(c.RWMutex(e.Name("probe"), locker.WithTTL(e.ttl)).TryRLock(ctx), locker.ErrUnsupported), nil
}

// probe locks and unlocks something.
func (e *groundExaminer) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second+e.ttl)
	defer cancel()
	c, err := e.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	m := c.Mutex(e.Name("probe"), locker.WithTTL(e.ttl), locker.WithoutRenewal())
	if err := m.Lock(ctx); err != nil {
		return err
	}
	err = m.Unlock(context.WithoutCancel(ctx))
	if errors.Is(err, locker.ErrLost) {
		return nil // slow, but reachable
	}
	return err
}

// urlThrough returns the URL with a proxy before each server.
func (e *groundExaminer) urlThrough(via func(string) string) string {
	var ways []string
	for _, addr := range e.Addresses() {
		ways = append(ways, via(addr))
	}
	return e.At(ways)
}

func openClient(t conformance.TB, url, prefix string) *locker.Client {
	c, err := locker.Open(t.Context(), url, locker.WithPrefix(prefix))
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func mutexOptions(ttl time.Duration, renew bool) []locker.MutexOption {
	opts := []locker.MutexOption{locker.WithTTL(ttl)}
	if !renew {
		opts = append(opts, locker.WithoutRenewal())
	}
	return opts
}

// Served returns how locks are made that are served to another check.
func Served(url, prefix string, ttl time.Duration) conformance.Harness {
	return conformance.Harness{
		TTL: ttl,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return openClient(t, url, prefix).RWMutex(name, mutexOptions(ttl, false)...)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			c := openClient(t, url, prefix)
			return func(name string) locker.Locker { return c.RWMutex(name, mutexOptions(ttl, renew)...) }
		},
	}
}

// examine runs one scenario on the deployment.
func (e *examiner) examine(ctx context.Context, s conformance.Scenario) Verdict {
	if e.begin != nil {
		e.begin(s)
	}
	var r conformance.Result
	err := fatal(ctx, func(t conformance.TB) { r = conformance.Examine(t, s, e.harness) })
	if err != nil {
		r = conformance.Result{
			Scenario: s.Name, Promise: s.Promise, Guarantee: s.Guarantee, Condition: s.Condition,
			Outcome: conformance.Undecided, Seen: err.Error(),
		}
	}
	for _, need := range s.Needs {
		if advice := e.advice[need]; advice != "" && r.Outcome == conformance.Broken {
			r.Seen += "\n" + advice
		}
	}
	return Verdict{r}
}

// clients holds the Clients of a check. Their number is limited, to leave connections to other
// users of the server: at the limit, the Lockers of a trial share the Clients that the trial has.
type clients struct {
	most int // of a scenario that has no processes and no proxies

	mu   sync.Mutex
	room int // of this scenario
	made int // that are open
	of   map[context.Context][]*locker.Client
	next int // of those to share
}

// faulty is how many clients of a scenario, at most, are processes of their own, or behind a proxy:
// those are never shared. One is that of Lockers which share a client.
const faulty = 10

// begin is called before each scenario.
func (c *clients) begin(s conformance.Scenario) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.room, c.of = c.most, map[context.Context][]*locker.Client{}
	if needs := strings.Join(s.Needs, " "); strings.Contains(needs, "Through") || strings.Contains(needs, "Process") {
		c.room -= faulty
	}
}

// get returns a client for a Locker of t: one that open makes if there is room, or else one of those
// that the trial has.
func (c *clients) get(t conformance.TB, open func() *locker.Client) *locker.Client {
	trial := t.Context()
	c.mu.Lock()
	if mine := c.of[trial]; c.made >= c.room && len(mine) > 0 {
		defer c.mu.Unlock()
		c.next++
		return mine[c.next%len(mine)]
	}
	c.made++
	c.mu.Unlock()
	t.Cleanup(func() { // after the client has been closed
		c.mu.Lock()
		defer c.mu.Unlock()
		c.made--
		delete(c.of, trial)
	})
	client := open()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[trial] = append(c.of[trial], client)
	return client
}

// pools has, by backend, the parameter that bounds the connections of a client to a server, what it
// is for a check, and how many connections a client may have beside those.
var pools = map[string]struct {
	param        string
	most, beside int
}{
	"redis":    {"pool_size", 8, 1},
	"redigo":   {"pool_size", 8, 1},
	"redlock":  {"pool_size", 8, 1},
	"mysql":    {"pool_size", 2, 2},
	"postgres": {"pool_max_conns", 1, 2},
}

// bounded returns d with few connections for each client, and how many; 0 if nobody knows.
func bounded(d target.Deployment) (_ target.Deployment, connections int) {
	switch d.Kind() {
	case "etcd", "zookeeper":
		return d, 1
	}
	pool, ok := pools[d.Kind()]
	if !ok {
		return d, 0
	}
	return d.With(pool.param, strconv.Itoa(pool.most)), pool.most + pool.beside
}
