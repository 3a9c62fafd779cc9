package thirdparty

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-zookeeper/zk"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/conformance/program"
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
			missing(t, "make setup-nightly has not unpacked it: "+err.Error())
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

// missing skips the test, or fails it where all programs are required.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("LOCKER_REQUIRE_ADAPTERS") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// server has the faults of a server.
type server interface {
	Stop()
	Continue()
	Kill()
	Wipe()
	Restart()
}

// judge puts a program through the suite.
func judge[S server](t *testing.T, ttl time.Duration, address string, command func() *exec.Cmd, servers ...S) {
	t.Helper()
	h := program.Exec(t, program.Program{TTL: ttl, Address: address, Command: command})
	l := libraryHere(t)
	require.Contains(t, h.Program.Hello.Name, l.Release, "another release: its findings may have gone")
	suite(t, l, h, servers)
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

// libraryHere is the one that the test is for.
func libraryHere(t *testing.T) Library {
	t.Helper()
	for _, l := range All() {
		if l.Test == t.Name() {
			t.Log(l.Settings)
			return l
		}
	}
	t.Fatal("no library names this test")
	return Library{}
}

// A finding is shown by a scenario each time, or by a test with the library alone, which the page names.
func TestFindings_areShown(t *testing.T) {
	source, err := os.ReadFile("repro_test.go")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/evidence/known-breaks.md")
	require.NoError(t, err)
	var named, tests []string
	for _, l := range All() {
		for _, f := range l.Findings {
			if f.Repro != "" {
				named = append(named, f.Repro)
				continue
			}
			assert.True(t, slices.ContainsFunc(conformance.Scenarios(), func(s conformance.Scenario) bool {
				return s.Deterministic && slices.Contains(f.Scenarios, s.Name)
			}), "%s: nothing shows: %s", l.Name, f.Cause)
		}
	}
	for _, found := range regexp.MustCompile(`(?m)^func (TestRepro_(\w+))`).FindAllStringSubmatch(string(source), -1) {
		tests = append(tests, found[1])
		assert.Contains(t, string(page), "`"+found[2]+"`")
	}
	slices.Sort(named)
	assert.ElementsMatch(t, tests, slices.Compact(named))
}

func TestConcurrencyMutex(t *testing.T) {
	server := testserver.Etcd(t)
	h := conformance.Harness{
		TTL: time.Second,
		Client: func(t conformance.TB, ttl time.Duration, _ bool) func(string) locker.Locker {
			s := openSession(t, dialEtcd(t, server.Addr()), ttl)
			return func(name string) locker.Locker { return newEtcdMutex(s, name) }
		},
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return newEtcdSessions(dialEtcd(t, server.Addr()), name, ttl)
		},
	}
	h.Faults.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return newEtcdSessions(dialEtcd(t, via(server.Addr())), name, ttl)
	}
	suite(t, libraryHere(t), h, []*testserver.EtcdServer{server})
}

func TestZkLock(t *testing.T) {
	server := testserver.ZooKeeper(t)
	run(t, 900*time.Millisecond, func(t conformance.TB, ttl time.Duration, renew bool, via func(string) string) func(string) locker.Locker {
		conn := dialZooKeeper(t, via(server.Addr()), ttl)
		return func(name string) locker.Locker { return newZkLock(conn, name, ttl, renew) }
	}, server)
}

// user is a test or a trial of the suite.
type user interface {
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

func dialEtcd(t user, addr string) *clientv3.Client {
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

func openSession(t user, cli *clientv3.Client, ttl time.Duration) *concurrency.Session {
	s, err := concurrency.NewSession(cli, concurrency.WithTTL(int(ttl.Seconds())))
	if err != nil {
		t.Fatalf("session: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func dialZooKeeper(t user, addr string, session time.Duration) *zk.Conn {
	conn, _, err := zk.Connect([]string{addr}, session, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func TestRedsync(t *testing.T) { conformRedsync(t, 1) }

func TestRedsync_threeNodes(t *testing.T) { conformRedsync(t, 3) }

func conformRedsync(t *testing.T, nodes int) {
	t.Helper()
	servers := make([]*testserver.RedisServer, nodes)
	for i := range servers {
		servers[i] = testserver.Redis(t, testserver.RedisPersistent())
	}
	run(t, 400*time.Millisecond, func(t conformance.TB, ttl time.Duration, _ bool, via func(string) string) func(string) locker.Locker {
		pools := make([]redsyncpool.Pool, nodes)
		for i, s := range servers {
			pools[i] = redsyncredis.NewPool(dialRedis(t, via(s.Addr())))
		}
		rs := redsync.New(pools...)
		return func(name string) locker.Locker { return newRedsync(rs, name, ttl) }
	}, servers...)
}

func TestRedislock(t *testing.T) {
	server := testserver.Redis(t, testserver.RedisPersistent())
	run(t, 300*time.Millisecond, func(t conformance.TB, ttl time.Duration, _ bool, via func(string) string) func(string) locker.Locker {
		c := redislock.New(dialRedis(t, via(server.Addr())))
		return func(name string) locker.Locker { return newRedislock(c, name, ttl) }
	}, server)
}

func TestRueidislock(t *testing.T) {
	server := testserver.Redis(t, testserver.RedisPersistent())
	run(t, 300*time.Millisecond, func(t conformance.TB, ttl time.Duration, renew bool, via func(string) string) func(string) locker.Locker {
		l, err := dialRueidislock(via(server.Addr()), ttl, renew)
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		t.Cleanup(l.Close)
		return func(name string) locker.Locker { return newRueidislock(l, name) }
	}, server)
}

// dialRedis makes a client that heeds ctx, which is off by default.
func dialRedis(t interface{ Cleanup(func()) }, addr string) *goredis.Client {
	rdb := goredis.NewClient(&goredis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// run puts a library through the suite. client has a connection of its own to what via returns for
// each server, and makes Lockers on it.
func run[S server](t *testing.T, ttl time.Duration,
	client func(t conformance.TB, ttl time.Duration, renew bool, via func(string) string) func(name string) locker.Locker, servers ...S,
) {
	t.Helper()
	h := conformance.Harness{
		TTL: ttl,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return client(t, ttl, false, straight)(name)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			return client(t, ttl, renew, straight)
		},
	}
	h.Faults.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return client(t, ttl, false, via)(name)
	}
	suite(t, libraryHere(t), h, servers)
}

// suite runs the suite with the faults that can tell libraries apart. A lock that is a key of one
// Redis is gone with the server's data, and expires by the server's clock, in every library.
func suite[S server](t *testing.T, l Library, h conformance.Harness, servers []S) {
	t.Helper()
	if len(servers) > 0 {
		harness.Servers(&h.Faults, servers, func() {
			for _, s := range servers {
				s.Restart()
			}
		})
		h.Faults.WipeServer = nil
	}
	h.Deviations = l.deviations(func(f Finding) []string { return f.Scenarios })
	h.Sometimes = l.deviations(func(f Finding) []string { return f.Sometimes })
	t.Parallel()
	conformance.Run(t, h)
}

// straight is the way to a server with nothing in between.
func straight(addr string) string { return addr }
