package thirdparty

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/netfault"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Tests of libraries of other languages run a script in adapters/repro, in which there is the library and nothing of ours.

const usualPython = "/usr/bin/python3"

// scripted returns the command of a script, with the address of its server.
func scripted(t *testing.T, interpreter, file, address string, needs ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, nil, interpreter, "repro/"+file, needs...)()
	cmd.Env = append(cmd.Env, "LOCKER_ADDRESS="+address)
	return cmd
}

// printed returns what a script prints, which has to end well.
func printed(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// interruptedScript runs a script that prints a line, waits for one after between, and prints another, which is returned.
func interruptedScript(t *testing.T, cmd *exec.Cmd, between func()) string {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan(), "its first line")
	between()
	_, err = stdin.Write([]byte("\n"))
	require.NoError(t, err)
	require.True(t, lines.Scan(), "its second line")
	said := lines.Text()
	require.NoError(t, cmd.Wait())
	return said
}

func TestRepro_redispy_doesNotCountItsTime(t *testing.T) {
	n := startRedis(t)
	assert.Empty(t, printed(t, scripted(t, usualPython, "redispy_time.py", n.Addr(), pythonPackages+"/redis")))
}

func TestRepro_redispy_aLateAcquireHolds(t *testing.T) {
	lateAcquireHolds(t, func(address string) *exec.Cmd {
		return scripted(t, usualPython, "redispy_late.py", address, pythonPackages+"/redis")
	})
}

func TestRepro_npmRedlock_aLateAcquireHolds(t *testing.T) {
	lateAcquireHolds(t, func(address string) *exec.Cmd {
		return scripted(t, "node", "redlock_late.js", address, nodePackages+"/redlock")
	})
}

// lateAcquireHolds keeps back what a script sends, until its acquire has failed.
func lateAcquireHolds(t *testing.T, script func(address string) *exec.Cmd) {
	t.Helper()
	n := startRedis(t)
	p, err := netfault.Start("127.0.0.1:0", n.Addr())
	require.NoError(t, err)
	t.Cleanup(p.Close)
	p.HoldRequests(true)
	cmd := script(p.Addr())
	cmd.Env = append(cmd.Env, "LOCKER_DIRECT="+n.Addr())
	require.Equal(t, "failed", printed(t, cmd))
	require.False(t, n.has(t, "x"))
	p.ReleaseRequests()
	await(t, "the request has arrived, and holds", func() bool { return n.has(t, "x") })
	left, err := n.direct.PTTL(t.Context(), "x").Result()
	require.NoError(t, err)
	assert.Greater(t, left, 50*time.Second, "of 60")
}

func TestRepro_kazoo_cancelledDoesNotSayHeld(t *testing.T) {
	s := testserver.SharedZooKeeper(t)
	assert.Equal(t, "cancelled, and no word of the holder", printed(t, scripted(t, usualPython, "kazoo_cancel.py", s.Addr(), pythonPackages+"/kazoo")))
}

func TestRepro_kazoo_timeoutDoesNotBoundRequests(t *testing.T) {
	cmd := scripted(t, usualPython, "kazoo_silent.py", "", pythonPackages+"/kazoo")
	s := testserver.ZooKeeper(t)
	cmd.Env = append(cmd.Env, "LOCKER_ADDRESS="+s.Addr())
	assert.Equal(t, "still waits", interruptedScript(t, cmd, s.Stop))
	s.Continue()
}

func TestRepro_kazoo_isAcquiredStays(t *testing.T) {
	cmd := scripted(t, usualPython, "kazoo_stays.py", "", pythonPackages+"/kazoo")
	s := testserver.ZooKeeper(t)
	cmd.Env = append(cmd.Env, "LOCKER_ADDRESS="+s.Addr())
	assert.Equal(t, "is_acquired", interruptedScript(t, cmd, func() {
		conn := dialZooKeeper(t, s.Addr(), time.Second)
		nodes, _, err := conn.Children("/locks/x")
		require.NoError(t, err)
		for _, node := range nodes { // as the end of the session does
			require.NoError(t, conn.Delete("/locks/x/"+node, -1))
		}
	}))
}

func TestRepro_npmEtcd3_cannotBeCancelled(t *testing.T) {
	cmd := scripted(t, "node", "etcd3_methods.js", "", nodePackages+"/etcd3")
	assert.Equal(t, "acquire constructor do leaseId options release ttl 0", printed(t, cmd), "and acquire takes no argument")
}

func TestRepro_npmEtcd3_doesNotTellOfALoss(t *testing.T) {
	s := testserver.Etcd(t)
	assert.Equal(t, "both hold", printed(t, scripted(t, "node", "etcd3_loss.js", s.Addr(), nodePackages+"/etcd3")))
}
