package testserver

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMemoryDir_ofADeadProcessIsRemoved(t *testing.T) {
	old := func() string {
		dir, err := os.MkdirTemp(inMemory, memoryPrefix)
		require.NoError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		long := time.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes(dir, long, long))
		return dir
	}
	MemoryDir(t) // which removes what is there
	dead, alive := old(), old()
	fresh, err := os.MkdirTemp(inMemory, memoryPrefix)
	require.NoError(t, err)
	defer os.RemoveAll(fresh)
	held, err := holdDir(alive)
	require.NoError(t, err)
	defer held.Close()
	removeDeadDirs()
	assert.NoDirExists(t, dead, "no process has locked it")
	assert.DirExists(t, alive, "a process has locked it")
	assert.DirExists(t, fresh, "a process may be about to lock it")
}

// ahead is by how much a server's TIME is ahead of the clock here.
func ahead(t *testing.T, s *RedisServer) time.Duration {
	t.Helper()
	now := s.must("TIME").([]any)
	sec, err1 := strconv.ParseInt(now[0].(string), 10, 64)
	usec, err2 := strconv.ParseInt(now[1].(string), 10, 64)
	if err1 != nil || err2 != nil || usec < 0 || usec >= 1e6 {
		t.Fatalf("TIME says %v", now)
	}
	return time.Until(time.Unix(sec, 1000*usec))
}

// wantAhead allows for what a loaded machine needs to ask for the time.
func wantAhead(t *testing.T, s *RedisServer, want time.Duration) {
	t.Helper()
	if is := ahead(t, s); is > want+time.Millisecond || is < want-10*time.Second {
		t.Errorf("the server's clock is %v ahead, want %v", is, want)
	}
}

func TestClock_jumpsAddUpAndOutliveTheServer(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t, RedisClock())
	s.ShiftClock(time.Hour)
	s.ShiftClock(-15 * time.Minute)
	wantAhead(t, s, 45*time.Minute)
	s.Restart()
	wantAhead(t, s, 45*time.Minute)
	s.Kill()
	s.ShiftClock(-45 * time.Minute)
	s.Restart()
	wantAhead(t, s, 0)
}

// A server whose clock cannot be shifted would have a test prove nothing.
func TestClock_serverDoesNotStartWithoutItsFile(t *testing.T) {
	onlyInCheck(t)
	r := &recorder{TB: t}
	var s *RedisServer
	r.run(func() { s = Redis(r, RedisClock()) })
	if r.skip != "" {
		t.Skip(r.skip)
	}
	defer r.cleanUp()
	if err := os.Remove(s.clockFile); err != nil {
		t.Fatal(err)
	}
	r.run(s.Restart)
	if !strings.Contains(r.fatal, "TESTSERVER_CLOCK") {
		t.Errorf("Fatalf said %q, want what is wrong", r.fatal)
	}
}
