//go:build unix

package natslock_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	natslock "github.com/go-locker/locker/examples/nats"
)

// The test binary is also the server, in a process of its own that can be stopped and killed, and
// the holders that the suite stops and kills.
func TestMain(m *testing.M) {
	if port := os.Getenv("NATSLOCK_PORT"); port != "" {
		serve(port, os.Getenv("NATSLOCK_DIR"))
	}
	conformance.Serve(func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
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
	if err != nil {
		t.Fatalf("open: %v", err)
	}
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
	if _, err := p.cmd.StdinPipe(); err != nil {
		t.Fatalf("stdin: %v", err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("stdout: %v", err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start: %v", err)
	}
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

func (p *process) signal(t conformance.TB, s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%v: %v", s, err)
	}
}

// revoke deletes the key of a hold, as an operator does.
func (p *process) revoke(t conformance.TB, name string) {
	nc, err := nats.Connect(p.addr)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("jetstream: %v", err)
	}
	kv, err := js.KeyValue(t.Context(), "locks")
	if err == nil {
		err = kv.Delete(t.Context(), natslock.Key("locker:"+name))
	}
	if err != nil {
		t.Fatalf("delete: %v", err)
	}
}
