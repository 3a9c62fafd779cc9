// Package testserver starts real servers for tests, on loopback addresses, each on a free port and
// in a directory of its own, and stops them when the test ends.
//
// Its functions fail the test through [testing.TB.Fatalf], so they are for the goroutine that runs
// the test. Where a server's program is not installed the test is skipped, or fails if the
// environment variable CI or LOCKER_REQUIRE_SERVERS is set: a run that is meant to prove something
// must not pass by leaving it out. Valkey, which not every system has, is the exception.
package testserver

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// Generous, for a loaded machine: a server that is ready is noticed within pollInterval.
	readyTimeout = 30 * time.Second
	goneTimeout  = 30 * time.Second
	pollInterval = 2 * time.Millisecond
	logTail      = 20 // lines

	// Servers that agree with each other, asked with a new connection each time.
	settleTimeout  = time.Minute
	settleInterval = 10 * time.Millisecond
	askAgain       = 6 * time.Second // for a failover that did not come about
)

// process is one server program that may be started several times in a row. Its exported methods
// are those of every server in this package.
type process struct {
	t    testing.TB
	name string // for messages
	path string
	args []string
	env  []string // beside that of the test
	dir  string
	sys  *syscall.SysProcAttr

	port     int           // for clients, on 127.0.0.1
	isReady  func() error  // nil when the server answers
	patience time.Duration // until it is ready; 0: readyTimeout

	layOut func() error // makes what the data begin with, unless it is there; may be nil

	clockFile string // where the server reads by how much its wall clock is shifted, if it has one of its own

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process that cmd started is gone

	stopped bool // by Stop
}

// newProcess prepares the program at path, with its files in dir. The caller sets args.
func newProcess(t testing.TB, name, path, dir string) *process {
	t.Helper()
	p := &process{t: t, name: name, path: path, dir: dir, sys: diesWithUs()}
	// Registered after the clean-up of dir and so run before it: nobody writes into a directory
	// that is being removed.
	t.Cleanup(p.kill)
	return p
}

// serve starts the server and returns when it answers. After an error nothing is running.
func (p *process) serve() error {
	if p.layOut != nil {
		if err := p.layOut(); err != nil {
			return err
		}
	}
	log, err := os.Create(p.logFile())
	if err != nil {
		return err
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p.dir, log, log, p.sys
	cmd.Env = append(os.Environ(), p.env...)

	started, exited := make(chan error), make(chan struct{})
	go func() {
		// The parent that diesWithUs speaks of is the thread, not the process. This goroutine
		// keeps its thread from before the start until the server is gone, and the Go runtime
		// ends no thread that a goroutine is locked to; so the thread ends early only with the
		// whole test process, and neither it nor the goroutine outlives the server.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := cmd.Start()
		_ = log.Close()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.cmd, p.exited, p.stopped = cmd, exited, false
	if err := p.awaitReady(); err != nil {
		p.kill()
		return err
	}
	return nil
}

// begin starts the server on a free port, with the arguments for it.
func (p *process) begin(args func(port int) []string) {
	p.t.Helper()
	withPort(p.t, p.name, func(port int) error {
		p.port, p.args = port, args(port)
		return p.serve()
	})
}

// Restart kills the server if it runs and starts it again, on the same port and with the data that it
// has kept. It returns when the server answers, which takes a majority where there are several: those
// that were lost as a whole have a Restart of their own.
func (p *process) Restart() {
	p.t.Helper()
	p.kill()
	if err := p.serve(); err != nil {
		p.t.Fatalf("testserver: %s did not start again on port %d: %v", p.name, p.port, err)
	}
}

// Addr returns the "127.0.0.1:port" for clients. It stays the same for all of the server's life.
func (p *process) Addr() string { return loopback(p.port) }

func (p *process) awaitReady() error {
	patience := cmp.Or(p.patience, readyTimeout)
	deadline := time.Now().Add(patience)
	for {
		err := p.isReady()
		switch {
		case !p.running():
			return &startError{p.cmd.ProcessState.String() + " before it was ready", p.tail()}
		case err == nil:
			return nil
		case time.Now().After(deadline):
			return &startError{fmt.Sprintf("not ready after %v: %v", patience, err), p.tail()}
		}
		select {
		case <-p.exited:
		case <-time.After(pollInterval):
		}
	}
}

// PID returns the number of the server's process.
func (p *process) PID() int { return p.cmd.Process.Pid }

// Stop freezes the server (SIGSTOP): the kernel still accepts connections and data for it, and
// nothing answers. It returns when all of the server's threads have stopped.
func (p *process) Stop() {
	p.t.Helper()
	p.signal(sigStop)
	p.stopped = true
	for deadline := time.Now().Add(goneTimeout); !isStopped(p.cmd.Process.Pid); {
		if !p.running() || time.Now().After(deadline) {
			p.t.Fatalf("testserver: %s did not stop", p.name)
		}
		time.Sleep(pollInterval)
	}
}

// Continue undoes Stop. The server then works through what has arrived meanwhile.
func (p *process) Continue() {
	p.t.Helper()
	p.signal(sigCont)
	p.stopped = false
}

// Kill ends the server as a crash would (SIGKILL) and waits until it is gone. It does nothing if
// the server is not running.
func (p *process) Kill() {
	p.t.Helper()
	p.kill()
}

func (p *process) kill() {
	if !p.running() {
		return
	}
	// An error means that the process has ended, which is what we wait for.
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// dataDir is where servers that keep data beyond their end have them.
func (p *process) dataDir() string { return filepath.Join(p.dir, "data") }

// Wipe removes the data of a killed server. Of a cluster, wipe all servers: it starts anew.
func (p *process) Wipe() {
	p.t.Helper()
	if p.running() {
		p.t.Fatalf("testserver: %s runs: its data cannot be removed", p.name)
	}
	p.check(os.RemoveAll(p.dataDir()))
}

// leaveRoot is for servers that refuse to run as root.
func (p *process) leaveRoot() {
	p.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if err := notAsRoot(p.sys, p.dir); err != nil {
		unavailable(p.t, err, "run the tests as another user")
	}
}

// check ends the test if err is not nil.
func (p *process) check(err error) {
	p.t.Helper()
	check(p.t, p.name, err)
}

func check(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("testserver: %s: %v", what, err)
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if !p.running() {
		p.t.Fatalf("testserver: %s is not running, cannot send it %v", p.name, s)
	}
	p.check(p.cmd.Process.Signal(s))
}

func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// responsive reports whether an answer is to be expected.
func (p *process) responsive() bool { return p.running() && !p.stopped }

// Log returns what the server has logged.
func (p *process) Log() string {
	p.t.Helper()
	log, err := os.ReadFile(p.logFile())
	p.check(err)
	return string(log)
}

func (p *process) logFile() string { return filepath.Join(p.dir, p.name+".log") }

// tail returns the last lines that the server wrote since it was last started.
func (p *process) tail() string {
	log, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-logTail):], "\n")
}

// await returns when condition returns nil, for which it asks time and again.
func await(t testing.TB, what string, condition func() error) {
	t.Helper()
	settled(t, what, func() (struct{}, error) { return struct{}{}, condition() })
}

// settled returns what of returns when that succeeds, for which it asks time and again.
func settled[T any](t testing.TB, what string, of func() (T, error)) T {
	t.Helper()
	for deadline := time.Now().Add(settleTimeout); ; time.Sleep(settleInterval) {
		v, err := of()
		if err == nil {
			return v
		}
		if time.Now().After(deadline) {
			t.Fatalf("testserver: after %v still waiting until %s: %v", settleTimeout, what, err)
		}
	}
}

// startError says why a server did not become ready, with the end of its log.
type startError struct{ reason, log string }

func (e *startError) Error() string { return e.reason + "; its log ends:\n" + e.log }

// isPortTaken reports whether a server could not start because somebody else has its port.
// Go, Java and Redis all print the C library's message.
func isPortTaken(err error) bool {
	var failed *startError
	return errors.As(err, &failed) && strings.Contains(failed.log, "ddress already in use") ||
		errors.Is(err, syscall.EADDRINUSE)
}

// lookup finds the program of s, or ends the test.
func lookup(t testing.TB, s server) string {
	t.Helper()
	path, err := find(s.program)
	if err != nil {
		unavailable(t, err, s.install)
	}
	return path
}

// Need skips or fails the test where one of the programs is missing. It is for tests of programs that start servers
// by a [Host].
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := find(program); err != nil {
			unavailable(t, err, "run make setup, or install it")
		}
	}
}

// unavailable ends a test that needs what err says is missing, and install tells people how to get.
func unavailable(t testing.TB, err error, install string) {
	t.Helper()
	for _, required := range []string{"LOCKER_REQUIRE_SERVERS", "CI"} {
		if os.Getenv(required) != "" {
			t.Fatalf("testserver: %v; %s (required because %s is set)", err, install, required)
		}
	}
	t.Skipf("testserver: %v; %s", err, install)
}

// find looks for program on the PATH, or else in the directory .bin that `make setup` fills at the
// root of the repository, unless LOCKER_BARE is set.
func find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil || os.Getenv("LOCKER_BARE") != "" {
		return path, err
	}
	if dir, wdErr := os.Getwd(); wdErr == nil {
		for ; ; dir = filepath.Dir(dir) {
			if path, err := exec.LookPath(filepath.Join(dir, ".bin", program)); err == nil {
				return path, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", err
}

// Ports lie below the ephemeral range of every system we know, so that no outgoing connection of
// anybody sits on one, and below 20000, so that the Redis Cluster bus at port + 10000 stays there
// too. The default ports of Redis, etcd and ZooKeeper are all below firstPort.
const (
	firstPort = 10000
	lastPort  = 19999
)

// reservePort returns a TCP port of the loopback interface that is free and stays reserved among
// all test processes of this machine until the test ends, also while the server that uses it is
// down between a Kill and a Restart.
//
// The reservation is a UDP socket on the same number: UDP and TCP do not get in each other's way,
// only one process can have it, and the kernel gives it back when that process dies, however it
// dies. Processes that know nothing of this are seen by the TCP probe; what slips between probe and
// start ends in errPortTaken.
func reservePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		reservation, err := net.ListenPacket("udp4", loopback(port))
		if err != nil {
			continue
		}
		probe, err := net.Listen("tcp4", loopback(port))
		if err != nil {
			_ = reservation.Close()
			continue
		}
		_ = probe.Close()
		t.Cleanup(func() { _ = reservation.Close() })
		return port
	}
	t.Fatalf("testserver: found no free port between %d and %d on 127.0.0.1", firstPort, lastPort)
	return 0
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// withPort is withPorts for a server on its own.
func withPort(t testing.TB, what string, start func(port int) error) {
	t.Helper()
	withPorts(t, what, 1, func(ports []int) error { return start(ports[0]) })
}

// withPorts calls start with n reserved ports until none of them is taken, and fails the test with
// start's error otherwise.
func withPorts(t testing.TB, what string, n int, start func(ports []int) error) {
	t.Helper()
	const attempts = 10
	var err error
	for range attempts {
		ports := make([]int, n)
		for i := range ports {
			ports[i] = reservePort(t)
		}
		if err = start(ports); !isPortTaken(err) {
			break
		}
	}
	check(t, what+" could not start", err)
}

// member is one of several servers.
type member interface {
	serve() error
	kill()
	Addr() string
}

// group is servers that belong together.
type group[S member] struct {
	t       testing.TB
	servers []S
}

// Servers returns them in the order of their start.
func (g *group[S]) Servers() []S { return slices.Clone(g.servers) }

// Addrs returns their addresses for clients.
func (g *group[S]) Addrs() []string { return addrs(g.servers) }

// Restart kills all and starts them again, with the data that they have kept.
func (g *group[S]) Restart() {
	g.t.Helper()
	for _, s := range g.servers {
		s.kill()
	}
	if err := startAll(g.servers); err != nil {
		g.t.Fatalf("testserver: the servers did not start again: %v", err)
	}
}

// startAll starts servers side by side. After an error some of them may run.
func startAll[S interface{ serve() error }](servers []S) error {
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = s.serve() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// startAnew is startAll for servers without data. After an error no server runs, and no data are
// left.
func startAnew[S interface {
	member
	dataDir() string
}](servers []S,
) error {
	err := startAll(servers)
	if err == nil {
		return nil
	}
	for _, s := range servers {
		s.kill()
		err = errors.Join(err, os.RemoveAll(s.dataDir()))
	}
	return err
}

func addrs[S interface{ Addr() string }](servers []S) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}
