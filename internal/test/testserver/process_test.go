package testserver

import (
	"fmt"
	"net"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ended is a TB that keeps how the function under test has ended it.
type ended struct {
	testing.TB
	fatal, skip string
}

func (*ended) Helper()        {}
func (*ended) Cleanup(func()) {}

func (e *ended) Fatalf(format string, args ...any) {
	e.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (e *ended) Skipf(format string, args ...any) {
	e.skip = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// A run that is meant to prove something must not pass by leaving it out.
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
			e, done := &ended{TB: t}, make(chan struct{})
			go func() {
				defer close(done)
				Redis(e)
			}()
			<-done
			assert.Contains(t, e.fatal, c.wantFatal)
			assert.Contains(t, e.skip, c.wantSkip)
			assert.NotEqual(t, e.fatal == "", e.skip == "", "one of the two")
		})
	}
}

// A port stays that of its test while no server listens on it.
func TestReservePort_isExclusiveUntilCleanup(t *testing.T) {
	var port int
	t.Run("reserved", func(t *testing.T) {
		port = reservePort(t)
		_, err := net.ListenPacket("udp4", loopback(port))
		require.Error(t, err, "another process could reserve it")
	})
	again, err := net.ListenPacket("udp4", loopback(port))
	require.NoError(t, err, "it is still reserved after the clean-up")
	require.NoError(t, again.Close())
}

func TestWithPort_takesAnotherWhenTheServerFindsItTaken(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	s := newRedis(t)
	s.isReady = func() error {
		conn, err := net.Dial("tcp4", s.Addr())
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	attempts := 0
	s.begin(func(port int) []string {
		if attempts++; attempts == 1 {
			port = taken.Addr().(*net.TCPAddr).Port
		}
		return []string{"--bind", "127.0.0.1", "--save", "", "--port", strconv.Itoa(port)}
	})
	assert.Equal(t, 2, attempts)
}
