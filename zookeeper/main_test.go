package zookeeper_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/zookeeper"
)

func TestMain(m *testing.M) {
	harness.Serve()
	goleak.VerifyTestMain(testserver.Tests(m), goleak.Cleanup(func(code int) {
		testserver.TellMissing() // this is the last package that go test ./... lists
		os.Exit(code)
	}))
}

const (
	patient    = time.Minute
	serverTick = 100 * time.Millisecond
)

var (
	eventually  = testwait.Patience(patient).Until
	await       = testwait.Patience(patient).Result
	async       = testwait.Go
	withTimeout = testwait.Context
	space       = harness.Space
	direct      = zookeeper.Direct
)

// openURL opens a Client in the test's space, and closes it when the test ends. parameters are as
// in a URL's query.
func openURL(t testing.TB, url, parameters string, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.Open(context.WithoutCancel(t.Context()), strings.TrimSuffix(url+"?tick=100ms&"+parameters, "&"),
		append([]locker.Option{locker.WithPrefix(space(t))}, opts...)...))(t)
}

// parent is the node of a Mutex's name, in the test's space.
func parent(t testing.TB, name string) string {
	t.Helper()
	return "/" + space(t) + "/" + name
}

// queue lists the nodes of those who stand in the queue of a name, in order.
func queue(t testing.TB, conn *zk.Conn, name string) []string {
	t.Helper()
	return queueAt(t, conn, parent(t, name))
}

// queueAt is queue, of the node of a Mutex's name.
func queueAt(t testing.TB, conn *zk.Conn, parent string) []string {
	t.Helper()
	children, _, err := conn.Children(parent)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	require.NoError(t, err)
	slices.SortFunc(children, func(a, b string) int { return strings.Compare(number(a), number(b)) })
	for i := range children {
		children[i] = parent + "/" + children[i]
	}
	return children
}

func number(child string) string {
	return child[strings.LastIndexByte(child, '-')+1:]
}

// sessionOf is the session that a node is on.
func sessionOf(t testing.TB, conn *zk.Conn, node string) int64 {
	t.Helper()
	_, stat, err := conn.Get(node)
	require.NoError(t, err)
	return stat.EphemeralOwner
}

func TestSessions(t *testing.T) {
	t.Parallel()
	sessions(t).Run(t)
}

// sessions is a server, for the tests that are those of another backend too.
func sessions(t testing.TB) harness.Sessions {
	t.Helper()
	s, prefix := testserver.SharedZooKeeper(t), space(t)
	look := direct(t, s.Addr())
	return harness.Sessions{
		Addr: s.Addr(), Prefix: prefix,
		Driver: func(t testing.TB, addr string) claims.Driver {
			return testwait.Closed(zookeeper.NewDriver([]string{addr}, zookeeper.Tick(serverTick)))(t).(claims.Driver)
		},
		Open: func(t testing.TB, ttl time.Duration, opts ...locker.Option) *locker.Client {
			return openURL(t, s.URL(), "", append(opts, locker.WithPrefix(prefix), locker.WithTTL(ttl))...)
		},
		Queue:     func(t testing.TB, name string) []string { return queueAt(t, look, "/"+prefix+"/"+name) },
		SessionOf: func(t testing.TB, node string) int64 { return sessionOf(t, look, node) },
		End:       func(_ testing.TB, session int64) { s.EndSession(session) },
		Remove:    func(t testing.TB, node string) { require.NoError(t, look.Delete(node, -1)) },
		Put: func(t testing.TB, name, entry string) {
			_, err := look.Create("/"+prefix+"/"+name+"/"+entry, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		},
	}
}

// silence has nobody hear of the server, or the other way round, until the end of it is called.
func silence(p *testserver.Proxy) (end func()) {
	p.HoldRequests(true)
	p.HoldReplies(true)
	return func() {
		p.ReleaseRequests()
		p.ReleaseReplies()
	}
}
