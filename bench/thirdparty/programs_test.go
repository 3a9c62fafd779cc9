package thirdparty

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// command returns the command of a file in the folder adapters. The test is skipped if what it needs was not unpacked.
func command(t *testing.T, env []string, interpreter, file string, needs ...string) func() *exec.Cmd {
	t.Helper()
	testwait.OnlyNightly(t, "libraries of other languages are judged once")
	file, err := filepath.Abs(filepath.Join("adapters", file))
	require.NoError(t, err)
	interpreter, err = exec.LookPath(interpreter)
	if err != nil {
		missing(t, err.Error())
	}
	installed, err := filepath.Abs(filepath.Join("..", "..", ".bin", "adapters"))
	require.NoError(t, err)
	for _, need := range needs {
		if _, err := os.Stat(filepath.Join(installed, need)); err != nil {
			missing(t, "make setup-check has not unpacked it: "+err.Error())
		}
	}
	return func() *exec.Cmd {
		cmd := exec.Command(interpreter, file)
		cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1",
			"PYTHONPATH="+filepath.Join(installed, pythonPackages), "NODE_PATH="+filepath.Join(installed, nodePackages))
		cmd.Env = append(cmd.Env, env...)
		return cmd
	}
}

const (
	pythonPackages = "python/usr/lib/python3/dist-packages"
	nodePackages   = "node/node_modules"
)

// missing skips the test, where servers may be missing too.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("LOCKER_REQUIRE_ADAPTERS") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// judge puts a program through the suite. The faults are those of run.
func judge[S interface {
	Stop()
	Continue()
	Kill()
	Wipe()
	Restart()
}](t *testing.T, ttl time.Duration, address string, command func() *exec.Cmd, servers ...S) {
	t.Helper()
	h := conformance.Exec(t, conformance.Program{TTL: ttl, Address: address, Command: command})
	if len(servers) > 0 {
		harness.Servers(&h.Faults, servers, func() {
			for _, s := range servers {
				s.Restart()
			}
		})
		h.Faults.WipeServer = nil
	}
	l := libraryHere(t)
	require.Contains(t, conformance.ClaimsOf(h).Name, l.Release, "another release: its findings may have gone")
	h.Deviations = l.deviations(func(f Finding) []string { return f.Scenarios })
	h.Sometimes = l.deviations(func(f Finding) []string { return f.Sometimes })
	t.Parallel()
	conformance.Run(t, h)
}

func TestProgram_redispy(t *testing.T) {
	lock := command(t, nil, "/usr/bin/python3", "redispy/lock.py", pythonPackages+"/redis")
	server := testserver.Redis(t, testserver.RedisPersistent())
	judge(t, 500*time.Millisecond, server.Addr(), lock, server)
}

func TestProgram_kazoo(t *testing.T) {
	lock := command(t, nil, "/usr/bin/python3", "kazoo/lock.py", pythonPackages+"/kazoo")
	server := testserver.ZooKeeper(t)
	judge(t, time.Second, server.Addr(), lock, server)
}

func TestProgram_redlock(t *testing.T) {
	lock := command(t, nil, "node", "node/redlock.js", nodePackages+"/redlock")
	server := testserver.Redis(t, testserver.RedisPersistent())
	judge(t, 500*time.Millisecond, server.Addr(), lock, server)
}

func TestProgram_etcd3(t *testing.T) {
	lock := command(t, nil, "node", "node/etcd3.js", nodePackages+"/etcd3")
	server := testserver.Etcd(t)
	judge(t, 2*time.Second, server.Addr(), lock, server)
}

func TestProgram_flock(t *testing.T) {
	lock := command(t, []string{"LOCKER_FLOCK_DIR=" + t.TempDir()}, "bash", "flock/lock.sh")
	judge[*testserver.RedisServer](t, 500*time.Millisecond, "", lock)
}
