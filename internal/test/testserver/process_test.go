package testserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onlyInCheck is for most tests here: tests that share the servers would fail.
func onlyInCheck(t *testing.T) {
	t.Helper()
	testwait.OnlyNightly(t, "the tests of the adapters use these servers")
}

// recorder is a TB that keeps how the function under test ended it, and runs its own clean-ups.
type recorder struct {
	testing.TB
	fatal, skip string
	cleanups    []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skip = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TempDir removes the directory with the recorder's other clean-ups, not when the real test ends.
func (r *recorder) TempDir() string {
	dir, err := os.MkdirTemp("", "testserver")
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// run runs f as a test of its own, up to but without its clean-ups.
func (r *recorder) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (r *recorder) cleanUp() {
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		f()
	}
}

var eventually = testwait.Patience(20 * time.Second).Until

func TestRedis_programMissing(t *testing.T) {
	for _, c := range []struct{ ci, require, wantFatal, wantSkip string }{
		{wantSkip: "make setup"},
		{ci: "true", wantFatal: "make setup"},
		{require: "1", wantFatal: "LOCKER_REQUIRE_SERVERS is set"},
	} {
		t.Run("CI="+c.ci+",LOCKER_REQUIRE_SERVERS="+c.require, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			t.Setenv("CI", c.ci)
			t.Setenv("LOCKER_REQUIRE_SERVERS", c.require)
			t.Chdir(t.TempDir()) // outside the repository's .bin
			r := &recorder{TB: t}
			r.run(func() { Redis(r) })
			defer r.cleanUp()
			if !strings.Contains(r.fatal, c.wantFatal) || (r.fatal != "") != (c.wantFatal != "") {
				t.Errorf("Fatalf said %q, want %q in it", r.fatal, c.wantFatal)
			}
			if !strings.Contains(r.skip, c.wantSkip) || (r.skip != "") != (c.wantSkip != "") {
				t.Errorf("Skipf said %q, want %q in it", r.skip, c.wantSkip)
			}
		})
	}
}

func TestReservePort_isExclusiveUntilCleanup(t *testing.T) {
	r := &recorder{TB: t}
	port := reservePort(r)
	if port < firstPort || port > lastPort {
		t.Errorf("port %d, want one between %d and %d", port, firstPort, lastPort)
	}
	if second, err := net.ListenPacket("udp4", loopback(port)); err == nil {
		_ = second.Close()
		t.Errorf("port %d could be reserved a second time", port)
	}
	r.cleanUp()
	again, err := net.ListenPacket("udp4", loopback(port))
	if err != nil {
		t.Fatalf("port %d is still reserved after clean-up: %v", port, err)
	}
	_ = again.Close()
}

func TestWithPort_takesAnotherWhenTheServerFindsItTaken(t *testing.T) {
	onlyInCheck(t)
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, takenPort, _ := net.SplitHostPort(taken.Addr().String())

	s := newRedis(t)
	attempts := 0
	withPort(t, "redis-server", func(port int) error {
		s.port = port
		listen := strconv.Itoa(port)
		if attempts++; attempts == 1 {
			listen = takenPort
		}
		s.args = []string{"--bind", "127.0.0.1", "--save", "", "--port", listen}
		return s.start(s.answers)
	})
	if _, err := s.ask("PING"); err != nil || attempts != 2 {
		t.Errorf("after %d attempts PING says %v; want an answer after 2", attempts, err)
	}
}

// A killed test process runs no clean-up. This test starts one, which is the same program again.
func TestRedis_diesWithTheTestProcess(t *testing.T) {
	onlyInCheck(t)
	const env = "TESTSERVER_HELPER_PROCESS"
	if os.Getenv(env) != "" {
		fmt.Printf("addr=%s\n", Redis(t).Addr())
		select {} // until killed
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can tie a process to its parent")
	}
	lookup(t, redisServer)

	helper := exec.Command(os.Args[0], "-test.run=^TestRedis_diesWithTheTestProcess$")
	helper.Env = append(os.Environ(), env+"=1", "TMPDIR="+t.TempDir())
	helper.SysProcAttr = diesWithUs()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	if _, err := fmt.Fscanf(out, "addr=%s\n", &addr); err != nil {
		t.Fatalf("the helper process printed no address: %v", err)
	}
	if !accepts(addr) {
		t.Fatalf("the helper's server at %s does not run", addr)
	}
	if err := helper.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait()
	eventually(t, "the helper's server is gone", func() bool { return !accepts(addr) })
}

func accepts(addr string) bool {
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
