package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/internal/backends"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
	_ "github.com/go-locker/locker/redigo"
	_ "github.com/go-locker/locker/redis"
	_ "github.com/go-locker/locker/redlock"
	_ "github.com/go-locker/locker/zookeeper"
)

// lineOf returns the one line of a page of docs/backends that begins so, from there on.
func lineOf(t *testing.T, page, begins string) string {
	t.Helper()
	found := regexp.MustCompile(regexp.QuoteMeta(begins)+"[^`\n]*").FindAllString(read(t, "backends/"+page), -1)
	require.Len(t, found, 1, "%s: %q", page, begins)
	return found[0]
}

func openFor(t *testing.T, url string) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), url)
	require.NoError(t, err, url)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// holdAndWait has a holder, and one who waits and is served.
func holdAndWait(t *testing.T, c *locker.Client) {
	t.Helper()
	ctx := testwait.Context(t, time.Minute)
	holder, waiter := c.Mutex("orders/42"), c.Mutex("orders/42")
	require.NoError(t, holder.Lock(ctx))
	done := make(chan error, 1)
	go func() { done <- waiter.Lock(ctx) }()
	require.ErrorIs(t, c.Mutex("orders/42").TryLock(ctx), locker.ErrHeld)
	require.Eventually(t, func() bool {
		state, err := c.Inspect(ctx, "orders/42")
		return assert.NoError(t, err) && state.Held && len(state.Waiters) == 1
	}, time.Minute, 10*time.Millisecond, "it waits in the queue")
	require.NoError(t, holder.Extend(ctx))
	require.NoError(t, holder.Unlock(ctx))
	require.NoError(t, <-done)
	require.NoError(t, waiter.Unlock(ctx))
}

// The user of the page has all that it takes, and no more than the lock's own keys.
func TestRedisPage_theUserIsAllThatItTakes(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisPersistent(), testserver.RedisConfig(lineOf(t, "redis.md", "user app on >s3cret ")))
	admin := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer func() { _ = admin.Close() }()
	for _, scheme := range []string{"redis", "redigo"} {
		t.Run(scheme, func(t *testing.T) {
			c := openFor(t, scheme+"://app:s3cret@"+s.Addr())
			holdAndWait(t, c)
			share, err := c.RWMutex("orders/42").RAcquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, share.Extend(t.Context()))
			require.NoError(t, share.Unlock(t.Context()))
			warnings, err := c.Warnings(t.Context())
			require.NoError(t, err)
			assert.Empty(t, warnings)
			require.NoError(t, c.Close())
			assert.Empty(t, admin.Do(t.Context(), "ACL", "LOG").Val(), "refused, and done without")
			require.ErrorContains(t, openFor(t, scheme+"://app:s3cret@"+s.Addr()+"?prefix=other").Mutex("x").TryLock(t.Context()), "NOPERM")
			require.NoError(t, admin.Do(t.Context(), "ACL", "LOG", "RESET").Err())
		})
	}
}

// The page of Redlock refers to that of Redis.
func TestRedlockPage_theUserOfTheRedisPageIsAllThatItTakes(t *testing.T) {
	t.Parallel()
	user := lineOf(t, "redis.md", "user app on >s3cret ")
	var addrs []string
	for range 3 {
		addrs = append(addrs, testserver.Redis(t, testserver.RedisConfig(user)).Addr())
	}
	holdAndWait(t, openFor(t, "redlock://app:s3cret@"+strings.Join(addrs, ",")))
}

// freed has a lock held on a server, runs what a page says to free it, and fails unless the holder is told and another gets the lock.
func freed(t *testing.T, url string, command func() string) {
	t.Helper()
	ctx := testwait.Context(t, time.Minute)
	c := openFor(t, url+"?ttl=3s")
	holder := c.Mutex("orders/42")
	require.NoError(t, holder.Lock(ctx))
	require.ErrorIs(t, openFor(t, url).Mutex("orders/42").TryLock(ctx), locker.ErrHeld)
	line := command()
	out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
	require.NoError(t, err, "%s\n%s", line, out)
	next := openFor(t, url).Mutex("orders/42")
	require.NoError(t, next.Lock(ctx), "it is free")
	select {
	case <-holder.Hold().Lost():
	case <-ctx.Done():
		t.Fatal("the holder was not told")
	}
	require.ErrorIs(t, holder.Unlock(ctx), locker.ErrLost)
	require.NoError(t, next.Unlock(ctx))
}

func TestPages_freeALockByHand(t *testing.T) {
	t.Parallel()
	needs := func(t *testing.T, program string) {
		t.Helper()
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("not installed: ", program)
		}
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		needs(t, "redis-cli")
		s := testserver.Redis(t)
		freed(t, "redis://"+s.Addr(), func() string {
			return strings.Replace(lineOf(t, "redis.md", "redis-cli -u redis://locks:6379 PEXPIRE "), "locks:6379", s.Addr(), 1)
		})
	})
	t.Run("redlock", func(t *testing.T) {
		t.Parallel()
		needs(t, "redis-cli")
		var addrs, lines []string
		for range 3 {
			s := testserver.Redis(t)
			addrs = append(addrs, s.Addr())
			lines = append(lines, strings.Replace(lineOf(t, "redlock.md", "redis-cli "), "h1:6379", s.Addr(), 1))
		}
		freed(t, "redlock://"+strings.Join(addrs, ","), func() string { return strings.Join(lines, " && ") })
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		needs(t, "etcdctl")
		s := testserver.Etcd(t)
		direct := testwait.Closed(clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}}))(t)
		freed(t, "etcd://"+s.Addr(), func() string {
			// The page has people read the lease off what etcdctl prints.
			_, look, _ := strings.Cut(lineOf(t, "etcd.md", "etcdctl --endpoints h1:2379 get "), "get ")
			prefix := strings.Trim(strings.Fields(strings.TrimPrefix(look, "--prefix "))[0], "'")
			keys, err := direct.Get(t.Context(), prefix, clientv3.WithPrefix())
			require.NoError(t, err)
			require.Len(t, keys.Kvs, 1, prefix)
			line := lineOf(t, "etcd.md", "etcdctl --endpoints h1:2379 lease revoke ")
			require.Contains(t, line, "LEASE")
			return strings.NewReplacer("h1:2379", s.Addr(), "LEASE", strconv.FormatInt(keys.Kvs[0].Lease, 10)).Replace(line)
		})
	})
}

// A backend that has no row is found by nobody.
func TestBackends_haveRows(t *testing.T) {
	text := read(t, "backends/README.md")
	for _, b := range backends.All {
		row := regexp.MustCompile("(?m)^\\|.*`" + b.Schemes[0] + "://`.*$").FindString(text)
		for _, scheme := range b.Schemes {
			assert.Contains(t, row, "`"+scheme+"://`")
		}
		assert.Contains(t, row, "`"+b.Folder()+"`")
	}
}

// What nobody updates has its vulnerabilities for good.
func TestDependabot_looksAfterEveryModule(t *testing.T) {
	config := read(t, "../.github/dependabot.yml")
	for _, file := range find(t, "go.mod") {
		dir := path.Join("/", path.Dir(file))
		assert.Contains(t, config, "\n      - "+dir+"\n", "no entry for the module in %s", dir)
	}
}

// A backend that no part of make nightly names is tested in full by nobody.
func TestNightly_hasEveryBackend(t *testing.T) {
	makefile, workflow := read(t, "../Makefile"), read(t, "../.github/workflows/nightly.yml")
	for _, b := range backends.All[1:] { // memory's suite is a test of package conformance
		assert.FileExists(t, "../"+b.Folder()+"/conformance_test.go")
		assert.Contains(t, makefile, "\nnightly-"+b.Package+": ")
		assert.Contains(t, makefile, " nightly-soak-"+b.Package)
	}
	for _, part := range regexp.MustCompile(`nightly-([a-z-]+)[ :]`).FindAllStringSubmatch(makefile, -1) {
		assert.Contains(t, workflow, "          - "+strings.TrimSuffix(part[1], "-")+"\n")
	}
}

// The page names the servers on which the suite ran last, each in its row.
func TestCompatibility_namesTheServersOfTheGuarantees(t *testing.T) {
	file := testwait.Closed(os.Open("guarantees.json"))(t)
	var first struct {
		Setting struct{ Server string }
	}
	require.NoError(t, json.NewDecoder(file).Decode(&first))
	page := read(t, "compatibility.md")
	servers := strings.Split(first.Setting.Server, ", ")
	assert.Len(t, servers, 9)
	for _, server := range servers {
		name, version, _ := strings.Cut(server, " ")
		assert.Regexp(t, `(?m)^\| `+name+` .*\b`+version+`\b`, page, "the row of %s does not name %s", name, version)
	}
}

// What the page says that a TTL may be is what Open takes, and no more.
func TestLimitsPage(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| [^|]+ \\| `([a-z]+://[^`]*)` \\| (\\w+)[^|]* \\| (\\w+) \\| (\\w*).* \\|$").FindAllStringSubmatch(read(t, "limits.md"), -1)
	require.Len(t, rows, 5)
	for _, row := range rows {
		opens := func(ttl time.Duration) error {
			c, err := locker.Open(t.Context(), row[1]+"?ttl="+ttl.String())
			if err == nil {
				require.NoError(t, c.Close())
			}
			return err
		}
		step, err := time.ParseDuration(row[3])
		require.NoError(t, err, row)
		for i, end := range []string{row[2], row[4]} {
			ttl, err := time.ParseDuration(end)
			if err != nil {
				ttl = 30 * time.Second // the servers say
			} else {
				require.ErrorIs(t, opens(ttl+time.Duration(2*i-1)*max(step, time.Millisecond)), locker.ErrUnsupported, "%s: beyond %s", row[1], end)
			}
			require.NoError(t, opens(ttl), "%s: %s", row[1], end)
		}
		if step > 1 {
			require.ErrorIs(t, opens(time.Minute+step/2), locker.ErrUnsupported, "%s: half a step", row[1])
		}
	}
}
