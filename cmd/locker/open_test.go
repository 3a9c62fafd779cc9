//go:build unix

package main

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

// silent accepts one connection, says so, and answers nothing.
func silent(t *testing.T) (addr string, connected <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := l.Accept(); err == nil {
			defer func() { _ = c.Close() }()
			close(accepted)
			_, _ = l.Accept() // until it is closed
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String(), accepted
}

func TestOpen_isEndedByASignal(t *testing.T) {
	t.Parallel()
	for _, n := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for _, args := range [][]string{{"run"}, {"inspect"}, {"check"}} {
			addr, connected := silent(t)
			args = append(args, "etcd://app:secret@"+addr+"?dial_timeout=10m")
			switch args[0] {
			case "run":
				args = append(args, "name", "--", "true")
			case "inspect":
				args = append(args, "name")
			}
			p := begin(t, args...)
			select {
			case <-connected:
			case <-time.After(time.Duration(patience)):
				t.Fatalf("%q has connected to nothing", args)
			}
			require.NoError(t, p.cmd.Process.Signal(n))
			assert.Equal(t, 128+int(n), p.wait(), "%q: %s", args, p.stderr)
		}
	}
}

func TestRun_waitIsAlsoForOpening(t *testing.T) {
	t.Parallel()
	addr, _ := silent(t)
	o := locked(t, "run", "--wait", "200ms", "etcd://app:secret@"+addr+"?dial_timeout=10m", "name", "--", "true")
	assert.Equal(t, exitUnreachable, o.code, o.stderr)
}

// An outage at first, on a backend whose client library fails at once, is waited for like a holder.
func TestRun_waitIsAlsoForAnOutage(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Kill()
	began := time.Now()
	o := locked(t, "run", "--wait", "2s", s.URL()+"?ttl=1s", "name", "--", "true")
	assert.Equal(t, exitUnreachable, o.code, o.stderr)
	assert.Contains(t, o.stderr, "refused")
	assert.GreaterOrEqual(t, time.Since(began), 2*time.Second)

	p := begin(t, "run", "--wait", "5m", s.URL()+"?ttl=1s", "name", "--", "true")
	time.Sleep(2 * time.Second)
	s.Restart()
	assert.Equal(t, 0, p.wait(), p.stderr)
}
