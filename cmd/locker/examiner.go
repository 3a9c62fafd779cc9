package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/pflag"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	programs "github.com/go-locker/locker/conformance/program"
	"github.com/go-locker/locker/internal/backends"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/tb"
)

func (o *checkOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.run, "run", "", "only scenarios whose name matches this regular expression")
	f.DurationVar(&o.ttl, "ttl", 0, "shortest TTL (default 500ms; MySQL and PostgreSQL 1s; etcd and Kubernetes 2s; S3 3s; ZooKeeper 4s)")
	f.BoolVar(&o.strict, "strict", false, "also fail for warnings, and for promises kept in some trials only")
	f.StringVar(&o.prefix, "prefix", "", "prefix of the names (default: a new one)")
	f.IntVar(&o.clients, "clients", 12, "maximum of clients at once, 11 or more; each has a few connections")
}

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
	cleanUp func() string               // returns what stays, or ""
	advice  map[string]string           // on a broken promise, by what its scenario needs
}

// groundExaminer runs them on a deployment.
type groundExaminer struct {
	*ground
	ttl     time.Duration
	clients clients
}

// newExaminer fails if the deployment cannot be reached, or does not honour the TTL.
func newExaminer(ctx context.Context, url string, o *checkOptions) (*examiner, error) {
	if o.clients <= faulty {
		return nil, usagef("--clients: must be %d or more: a scenario may need that many, as processes or behind proxies", faulty+1)
	}
	g := &groundExaminer{ground: newGround(url, o.prefix, "check"), clients: clients{most: o.clients, room: o.clients}}
	var connections int
	g.deployment, connections = g.deployment.bounded()
	b, _ := backends.Of(g.deployment.Scheme)
	g.ttl = cmp.Or(o.ttl, b.ShortTTL)
	e := &examiner{title: g.deployment.String(), prefix: g.prefix, ttl: g.ttl, probe: g.probe, cleanUp: g.cleanUp, begin: g.clients.begin}
	e.bounds = fmt.Sprintf("at most %d clients at once", o.clients)
	if connections > 0 {
		e.bounds += fmt.Sprintf(", each with %d connections at most", connections)
	}
	c, err := open(ctx, url, locker.WithTTL(e.ttl)) // the URL as it was given: an error is about that
	if err != nil {
		return nil, err
	}
	e.harness = conformance.Harness{TTL: e.ttl, Promises: c.Guarantees(), New: g.lock, Client: g.client}
	e.warnings, _ = c.Warnings(ctx) // whether the servers answer is seen below
	if err := c.Close(); err != nil {
		return nil, err
	}
	g.prepare(ctx)
	if g.deployment.kind() == "zookeeper" {
		e.harness.Sometimes = knownbreaks.ZooKeeper()
	}
	if g.deployment.addresses() != nil {
		e.harness.Faults.Through, e.harness.Faults.ThroughClient = g.lockThrough, g.clientThrough
	}
	if self, err := os.Executable(); err == nil && g.deployment.kind() != "mem" && runtime.GOOS != "windows" { // which stops no processes
		e.harness.Faults.Process = func(conformance.TB) *exec.Cmd { return g.process(self) }
	}
	shares := false
	err = e.probe(ctx)
	if err == nil {
		shares, err = g.hasShares(ctx)
	}
	if err != nil {
		_ = g.cleanUpWithin(3 * time.Second) // a server that is silent stays so
		return nil, err
	}
	if shares {
		e.harness.RW = g.rw
	}
	return e, nil
}

// hasShares reports whether the backend has read-write locks.
func (e *groundExaminer) hasShares(ctx context.Context) (bool, error) {
	c, err := e.open(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }()
	return !errors.Is(c.RWMutex(e.name("probe"), locker.WithTTL(e.ttl)).TryRLock(ctx), locker.ErrUnsupported), nil
}

// probe locks and unlocks something.
func (e *groundExaminer) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second+e.ttl)
	defer cancel()
	c, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	m := c.Mutex(e.name("probe"), locker.WithTTL(e.ttl), locker.WithoutRenewal())
	if err := m.Lock(ctx); err != nil {
		return err
	}
	err = m.Unlock(context.WithoutCancel(ctx))
	if errors.Is(err, locker.ErrLost) {
		return nil // slow, but reachable
	}
	return err
}

// lock is New of the Harness.
func (e *groundExaminer) lock(t conformance.TB, name string, ttl time.Duration) locker.Locker {
	return e.shared(t).Mutex(e.name(name), mutexOptions(ttl, false)...)
}

// shared returns a client of its own for a Locker, if there is room for another.
func (e *groundExaminer) shared(t conformance.TB) *locker.Client {
	return e.clients.get(t, func() *locker.Client { return openClient(t, e.url(), e.prefix) })
}

// rw is RW of the Harness.
func (e *groundExaminer) rw(t conformance.TB, name string, ttl time.Duration) conformance.RWLocker {
	return e.shared(t).RWMutex(e.name(name), mutexOptions(ttl, false)...)
}

func (e *groundExaminer) lockThrough(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
	return openMutex(t, e.urlThrough(via), e.prefix, e.name(name), ttl)
}

func (e *groundExaminer) clientThrough(t conformance.TB, ttl time.Duration, renew bool, via func(string) string) func(string) locker.Locker {
	return e.clientOf(t, e.urlThrough(via), ttl, renew)
}

func (e *groundExaminer) urlThrough(via func(string) string) string {
	var ways []string
	for _, addr := range e.deployment.addresses() {
		ways = append(ways, via(addr))
	}
	return e.deployment.url(ways)
}

func (e *groundExaminer) client(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
	return e.clientOf(t, e.url(), ttl, renew)
}

func (e *groundExaminer) clientOf(t conformance.TB, url string, ttl time.Duration, renew bool) func(string) locker.Locker {
	c := openClient(t, url, e.prefix)
	return func(name string) locker.Locker { return c.Mutex(e.name(name), mutexOptions(ttl, renew)...) }
}

func (e *groundExaminer) process(self string) *exec.Cmd {
	cmd := exec.Command(self, "serve-lock", "--prefix", e.prefix, "--ttl", e.ttl.String(), "-")
	cmd.Env = append(os.Environ(), urlEnv+"="+e.url(), programs.AddressEnv+"=") // of us, it may be set
	return cmd
}

func openMutex(t conformance.TB, url, prefix, name string, ttl time.Duration) locker.Locker {
	return openClient(t, url, prefix).RWMutex(name, mutexOptions(ttl, false)...)
}

func openClient(t conformance.TB, url, prefix string) *locker.Client {
	c, err := locker.Open(t.Context(), url, locker.WithPrefix(prefix))
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// examine runs one scenario on the deployment.
func (e *examiner) examine(ctx context.Context, s conformance.Scenario) verdict {
	if e.begin != nil {
		e.begin(s)
	}
	t := tb.New(ctx, nil) // what is said of trials that are repeated is dropped
	var r conformance.Result
	err := t.Run(func() { r = conformance.Examine(t, s, e.harness) })
	t.End()
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
	return verdict{r}
}
