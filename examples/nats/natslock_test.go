//go:build unix

package natslock_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/conformance/program"
	"github.com/go-locker/locker/driver"
	natslock "github.com/go-locker/locker/examples/nats"
)

func connect(t conformance.TB, p *process) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(p.addr)
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	return nc, js
}

func must(t conformance.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// The suite accepts ErrLost here: the reply to a Release was lost, and another has the lock
// already. The second hold was extended before that, and has the token of its grant.
func TestClaim_askedAndReleasedAgain(t *testing.T) {
	nc, _ := connect(t, start(t))
	d := natslock.NewDriver(nc, "locks")
	var claims []driver.Claim
	for range 2 {
		c := d.Claim(driver.Request{Name: "locker:orders", TTL: time.Minute})
		claims = append(claims, c)
		for range 2 { // as if the first reply was lost
			_, err := c.Ask(t.Context())
			must(t, err)
		}
		if len(claims) == 1 {
			must(t, c.Release(t.Context()))
		}
	}
	must(t, claims[1].Extend(t.Context(), time.Minute))
	must(t, claims[0].Release(t.Context()))
	state, err := d.Inspect(t.Context(), "locker:orders")
	must(t, err)
	if state.Token != claims[1].Token() {
		t.Errorf("the token of the hold is %d, want %d", state.Token, claims[1].Token())
	}
	must(t, d.ForceRelease(t.Context(), "locker:orders", state))
	if err := claims[1].Release(t.Context()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the Release of a hold that was forced: %v, want ErrLost", err)
	}
}

// The place would end by itself, which is all that the suite wants.
func TestRelease_givesUpThePlace(t *testing.T) {
	nc, _ := connect(t, start(t))
	d := natslock.NewDriver(nc, "locks")
	ask := func() (driver.Claim, error) {
		c := d.Claim(driver.Request{Name: "locker:orders", TTL: time.Minute, Wake: func() {}})
		_, err := c.Ask(t.Context())
		return c, err
	}
	_, err := ask()
	must(t, err)
	waiter, err := ask()
	if !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("a second Ask: %v, want ErrHeld", err)
	}
	for want := 1; want >= 0; want-- {
		state, err := d.Inspect(t.Context(), "locker:orders")
		must(t, err)
		if len(state.Waiters) != want {
			t.Errorf("%d wait, want %d", len(state.Waiters), want)
		}
		must(t, waiter.Release(t.Context()))
	}
}

// Records of free locks go after an hour, and tokens must not begin again.
func TestToken_risesThoughTheServerStartsWithAnEmptyBucket(t *testing.T) {
	p := start(t)
	lock := func() uint64 {
		m := open(t, p.addr).Mutex("orders")
		must(t, m.Lock(t.Context()))
		defer func() { must(t, m.Unlock(t.Context())) }()
		return m.FencingToken()
	}
	before := lock()
	_, js := connect(t, p)
	stream, err := js.Stream(t.Context(), "KV_locks")
	must(t, err)
	must(t, stream.Purge(t.Context()))
	p.kill()
	p.run(t)
	if after := lock(); after <= before {
		t.Errorf("the token %d came after %d", after, before)
	}
}

func TestTryLock_refusesABucketThatWouldWakeNobody(t *testing.T) {
	nc, js := connect(t, start(t))
	_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "locks", LimitMarkerTTL: time.Second})
	must(t, err)
	client, err := natslock.New(nc, "locks")
	must(t, err)
	if err := client.Mutex("orders").TryLock(t.Context()); err == nil || !strings.Contains(err.Error(), "republish") {
		t.Errorf("TryLock: %v, want what the bucket lacks", err)
	}
	must(t, client.Close())
}

func TestOpen_refuses(t *testing.T) {
	for url, want := range map[string]string{
		"nats://":                     "host",
		"nats://h/path":               "path",
		"nats://h?bucket=a.b":         "bucket",
		"nats://h?replicas=many":      "replicas",
		"nats://h?ttl=1500ms":         "whole seconds",
		"nats://u:secret@h?colour=on": "colour",
	} {
		_, err := locker.Open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want an error about %s", url, err, want)
		}
	}
}

func TestConformance(t *testing.T) {
	p := start(t)
	via := func(t conformance.TB, name string, ttl time.Duration, address func(string) string) locker.Locker {
		return open(t, address(p.addr), locker.WithTTL(ttl), locker.WithoutRenewal()).Mutex(name)
	}
	h := conformance.Harness{
		TTL: time.Second,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return via(t, name, ttl, func(address string) string { return address })
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			opts := []locker.Option{locker.WithTTL(ttl)}
			if !renew {
				opts = append(opts, locker.WithoutRenewal())
			}
			c := open(t, p.addr, opts...)
			return func(name string) locker.Locker { return c.Mutex(name) }
		},
		Faults: conformance.Faults{
			StopServer: func(t conformance.TB) func() {
				p.signal(t, syscall.SIGSTOP)
				return func() { p.signal(t, syscall.SIGCONT) }
			},
			KillServer: func(t conformance.TB) func() {
				p.kill()
				return func() { p.run(t) }
			},
			WipeServer: func(t conformance.TB) func() {
				p.kill()
				p.wipe()
				return func() { p.run(t) }
			},
			Revoke:  p.revoke,
			Through: via,
			Process: func(conformance.TB) *exec.Cmd {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), "NATSLOCK_ADDR="+p.addr)
				return cmd
			},
		},
		Sometimes: map[string]string{
			"an Extend whose reply was lost leaves the hold as it was": "nats.go lets a request wait for its answer that was sent on a connection which has broken",
		},
		Deviations: map[string]string{
			"a hold lasts though the server loses its data":                       "the bucket has the holds, and one replica",
			"a random history is that of one lock though servers lose their data": "the bucket has the holds, and one replica",
		},
	}
	if os.Getenv("LOCKER_NIGHTLY") == "" {
		h.Faults, h.Deviations = conformance.Faults{Revoke: p.revoke, Through: via}, nil // the others take a minute and a half
	}
	conformance.Run(t, h)
}

// The test binary is also the server, in a process of its own that can be stopped and killed, and
// the holders that the suite stops and kills.
func TestMain(m *testing.M) {
	if port := os.Getenv("NATSLOCK_PORT"); port != "" {
		serve(port, os.Getenv("NATSLOCK_DIR"))
	}
	program.Serve(func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		return open(t, os.Getenv("NATSLOCK_ADDR"), locker.WithTTL(ttl), locker.WithoutRenewal()).Mutex(name)
	})
	os.Exit(m.Run())
}

func serve(port, dir string) {
	opts := &natsserver.Options{Host: "127.0.0.1", JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true}
	_, _ = fmt.Sscan(port, &opts.Port)
	s, err := natsserver.NewServer(opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) { // it stays, and says nothing, if another has the port
		os.Exit(1)
	}
	fmt.Println(s.Addr())
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test is gone
	os.Exit(0)
}

func open(t conformance.TB, addr string, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), "nats://"+addr, opts...)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// process is a server that is embedded in a process of this binary.
type process struct {
	addr, dir string
	cmd       *exec.Cmd
}

func start(t *testing.T) *process {
	t.Helper()
	p := &process{addr: fmt.Sprintf(":%d", natsserver.RANDOM_PORT), dir: t.TempDir()}
	p.run(t)
	t.Cleanup(p.kill)
	return p
}

func (p *process) run(t conformance.TB) {
	_, port, _ := net.SplitHostPort(p.addr)
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), "NATSLOCK_PORT="+port, "NATSLOCK_DIR="+p.dir)
	p.cmd.Stderr = os.Stderr
	_, err := p.cmd.StdinPipe()
	must(t, err)
	stdout, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	if _, err := fmt.Fscanln(stdout, &p.addr); err != nil {
		t.Fatalf("the server does not listen on %s: %v", p.addr, err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := p.answers(t)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not answer: %v", err)
		}
	}
}

// answers asks for the account, which is there when the server has read its files.
func (p *process) answers(t conformance.TB) error {
	nc, err := nats.Connect(p.addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.AccountInfo(t.Context())
	}
	return err
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *process) wipe() { _ = os.RemoveAll(filepath.Join(p.dir, "jetstream")) }

func (p *process) signal(t conformance.TB, s syscall.Signal) { must(t, p.cmd.Process.Signal(s)) }

// revoke deletes the key of a hold, as an operator does.
func (p *process) revoke(t conformance.TB, name string) {
	_, js := connect(t, p)
	kv, err := js.KeyValue(t.Context(), "locks")
	must(t, err)
	must(t, kv.Delete(t.Context(), natslock.Key("locker:"+name)))
}
