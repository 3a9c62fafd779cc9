// Package migrating runs what docs/migrating.md and docs/changeover.md show, on real servers: the locks of other libraries, ours in their
// place, and both of them in the time between. What is in the page is here; a test compares the two.
package migrating

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	_ "github.com/go-locker/locker/memory"
	"github.com/go-locker/locker/zookeeper"
)

// way does its work under a lock called orders/42.
type way func(ctx context.Context, work func(context.Context) error) error

// ours is the way of the last release.
func ours(client *locker.Client) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		return client.Mutex("orders/42").Do(ctx, work)
	}
}

// both is the way of the release between: our lock, and theirs within it.
func both(client *locker.Client, theirs way) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		return client.Mutex("orders/42").Do(ctx, func(ctx context.Context) error {
			return theirs(ctx, work)
		})
	}
}

// changeOver is what the page says of three releases: neighbours exclude each other, the first and the last do not.
func changeOver(t *testing.T, theirs way, client *locker.Client) {
	t.Helper()
	both, ours := both(client, theirs), ours(client)
	for _, pair := range []struct {
		first, second way
		name          string
	}{
		{theirs, theirs, "theirs, theirs"},
		{theirs, both, "theirs, both"},
		{both, theirs, "both, theirs"},
		{both, both, "both, both"},
		{both, ours, "both, ours"},
		{ours, both, "ours, both"},
		{ours, ours, "ours, ours"},
	} {
		t.Run(pair.name, func(t *testing.T) { excludes(t, pair.first, pair.second) })
	}
	t.Run("theirs and ours do not exclude each other", func(t *testing.T) {
		together := false
		require.NoError(t, theirs(limited(t), func(ctx context.Context) error {
			return ours(ctx, func(context.Context) error { together = true; return nil })
		}))
		assert.True(t, together)
	})
}

// excludes requires that the second does not begin its work before the first has ended, and does then.
func excludes(t *testing.T, first, second way) {
	t.Helper()
	ctx := limited(t)
	begun, end := make(chan struct{}), make(chan struct{})
	var ended, overlap atomic.Bool
	one := start(func() error {
		return first(ctx, func(context.Context) error {
			close(begun)
			<-end
			ended.Store(true)
			return nil
		})
	})
	select {
	case <-begun:
	case err := <-one:
		require.NoError(t, err, "the first")
	}
	two := start(func() error {
		return second(ctx, func(context.Context) error {
			overlap.Store(!ended.Load())
			return nil
		})
	})
	time.Sleep(100 * time.Millisecond) // enough to see most that do not exclude each other, and never too little for those that do
	close(end)
	require.NoError(t, <-one, "the first")
	require.NoError(t, <-two, "the second")
	assert.False(t, overlap.Load(), "both were at work")
}

// limited ends long after anything here is done.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// briefly ends while somebody waits for a lock that is not given back.
func briefly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func start(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// made is a Client that is closed with the test.
func made(t *testing.T) func(*locker.Client, error) *locker.Client {
	return func(client *locker.Client, err error) *locker.Client {
		t.Helper()
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
}

func startRedis(t *testing.T) *goredis.Client {
	t.Helper()
	rdb := goredis.NewClient(&goredis.Options{Addr: testserver.Redis(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// outlast waits until a Redis key is gone.
func outlast(t *testing.T, rdb *goredis.Client, key string) {
	t.Helper()
	require.Eventually(t, func() bool { return rdb.Exists(t.Context(), key).Val() == 0 }, 20*time.Second, 5*time.Millisecond, key)
}

// From one backend of ours to another, it is the same.
func TestOurs_changeOver(t *testing.T) {
	before, after := made(t)(locker.Open(t.Context(), "mem://before")), made(t)(locker.Open(t.Context(), "mem://after"))
	changeOver(t, ours(before), after)
}

// What ours says where theirs had words of its own.
func TestOurs_errors(t *testing.T) {
	ctx := t.Context()
	client := made(t)(locker.Open(ctx, "mem://errors"))
	m, other := client.Mutex("orders/42"), client.Mutex("orders/42")
	require.ErrorIs(t, m.Unlock(ctx), locker.ErrNotHeld)
	require.NoError(t, m.Lock(ctx))
	require.ErrorIs(t, other.TryLock(ctx), locker.ErrHeld)
	err := m.Lock(briefly(t)) // the holder's own, too: it is not reentrant
	require.ErrorIs(t, err, locker.ErrHeld)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, m.Unlock(ctx))
	require.ErrorIs(t, m.Unlock(ctx), locker.ErrNotHeld)
	require.NoError(t, m.TryLock(ctx))
	require.NoError(t, m.Unlock(ctx))

	brief := client.Mutex("orders/42", locker.WithTTL(50*time.Millisecond), locker.WithoutRenewal())
	require.NoError(t, brief.Lock(ctx))
	<-brief.Hold().Lost()
	assert.Zero(t, brief.FencingToken())
	require.ErrorIs(t, brief.Extend(ctx), locker.ErrLost)
	require.ErrorIs(t, brief.Unlock(ctx), locker.ErrLost)

	require.ErrorIs(t, brief.Do(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		return nil
	}), locker.ErrLost)
}

// page returns the pages on migrating, one after the other.
func page(t *testing.T) string {
	t.Helper()
	var all []byte
	for _, name := range []string{"migrating.md", "changeover.md"} {
		text, err := os.ReadFile("../../docs/" + name)
		require.NoError(t, err)
		all = append(all, text...)
	}
	return string(all)
}

// Go that the page shows, in blocks and in the columns of calls, is Go of this package, which compiles and runs.
func TestPage_showsWhatIsCompiled(t *testing.T) {
	source, text := sources(t), page(t)
	blocks, calls := blocks(text), calls(text)
	assert.GreaterOrEqual(t, len(blocks), 10)
	assert.GreaterOrEqual(t, len(calls), 50)
	for _, block := range blocks {
		assert.True(t, shows(source, block), "no test has\n%s", block)
	}
	for _, call := range calls {
		if !strings.Contains(source, call) { // which assert.Contains would print
			t.Errorf("no test has %s", call)
		}
	}
}

var block = regexp.MustCompile("(?s)\n```go\n(.*?\n)```\n")

func blocks(page string) (found []string) {
	for _, b := range block.FindAllStringSubmatch(page, -1) {
		found = append(found, b[1])
	}
	return found
}

var span = regexp.MustCompile("`([^`]+)`")

// calls are the code spans in the first two columns of tables that begin with theirs and ours.
func calls(page string) (found []string) {
	within := false
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			within = false
		case strings.HasPrefix(line, "| theirs | ours |"):
			within = true
		case within && len(cells) > 3:
			for _, s := range span.FindAllStringSubmatch(cells[1]+cells[2], -1) {
				found = append(found, s[1])
			}
		}
	}
	return found
}

// shows reports whether the lines of each paragraph of block follow one another in source, both without their
// indentation and remarks to linters.
func shows(source, block string) bool {
	for paragraph := range strings.SplitSeq(block, "\n\n") {
		if !strings.Contains(plain(source), plain(paragraph)) {
			return false
		}
	}
	return true
}

func plain(code string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(code) {
		line, _, _ = strings.Cut(line, " //nolint")
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// sources are the tests but this file, which has what is no example.
func sources(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		if file == "page_test.go" {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

func TestShows(t *testing.T) {
	const source = "func f() {\n\ta()\n\tdefer b() //nolint:errcheck // so\n\tif c() {\n\t\td()\n\t}\n}\n"
	for code, want := range map[string]bool{
		"a()\ndefer b()\n":     true,
		"if c() {\n\td()\n}\n": true,
		"a()\nif c() {\n":      false,
		"d()\n\na()\n":         true,
		"d()\n\nb()\n":         false,
		"b()\n":                false,
		"e()\n":                false,
	} {
		assert.Equal(t, want, shows(source, code), code)
	}
	assert.Equal(t, []string{"a()\n"}, blocks("text\n```go\na()\n```\n```\nb()\n```\n"))
	assert.Equal(t, []string{"a()", "b()", "c"}, calls("| theirs | ours | why |\n|---|---|---|\n| `a()` | `b()`, `c` | `d` |\n\n| x | y |\n| `e` | `f` |\n"))
}

func zkWay(conn *zk.Conn) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		l := zk.NewLock(conn, "/locks/orders-42", zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return err
		}
		defer l.Unlock() //nolint:errcheck // as it is often written
		return work(ctx)
	}
}

const timeout = 2 * time.Second

func connect(t *testing.T) (conn *zk.Conn, servers []string) {
	t.Helper()
	servers = []string{testserver.ZooKeeper(t).Addr()}
	conn, _, err := zk.Connect(servers, timeout)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn, servers
}

func TestZooKeeper_changeOver(t *testing.T) {
	conn, servers := connect(t)

	client, err := zookeeper.New(servers, locker.WithTTL(timeout))
	changeOver(t, zkWay(conn), made(t)(client, err))
}

func TestZooKeeper_whatALockSays(t *testing.T) {
	conn, _ := connect(t)
	l := zk.NewLock(conn, "/locks/orders-42", zk.WorldACL(zk.PermAll))
	require.ErrorIs(t, l.Unlock(), zk.ErrNotLocked)
	require.NoError(t, l.LockWithData([]byte("web-3")))
	require.ErrorIs(t, l.Lock(), zk.ErrDeadlock)
	children, _, err := conn.Children("/locks/orders-42")
	require.NoError(t, err)
	require.Len(t, children, 1)
	require.NoError(t, conn.Delete("/locks/orders-42/"+children[0], -1))
	require.ErrorIs(t, l.Unlock(), zk.ErrNoNode)
}

func TestZooKeeper_theTTLIsThatOfTheSession(t *testing.T) {
	_, servers := connect(t)
	acl := zk.WorldACL(zk.PermAll)
	d, err := zookeeper.NewDriver(servers, zookeeper.ACL(acl))
	require.NoError(t, err)
	client := made(t)(locker.New(d, locker.WithTTL(timeout), locker.WithMetadata("web-3")))
	m := client.Mutex("orders/42")
	require.NoError(t, m.Lock(t.Context()))
	assert.LessOrEqual(t, time.Until(m.Hold().Deadline()), timeout)
	require.NoError(t, m.Unlock(t.Context()))
}
