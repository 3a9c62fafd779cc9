package zookeeperfence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker/fence/zookeeperfence"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Tests(m)) }

const patient = time.Minute

var (
	eventually = testwait.Patience(patient).Until
	await      = testwait.Patience(patient).Result

	world = zk.WorldACL(zk.PermAll)
)

type silent struct{}

func (silent) Printf(string, ...any) {}

// connect makes a connection, and waits for its session.
func connect(t testing.TB, addrs ...string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range events {
		}
	})
	eventually(t, "there is a session", func() bool { return conn.State() == zk.StateHasSession })
	return conn
}

// resource is a node with a token, of which each write makes a child.
type resource string

// made counts those of all tests, which have one server in common.
var made atomic.Int64

func newResource(t testing.TB, conn *zk.Conn) resource {
	t.Helper()
	node := fmt.Sprint("/x", made.Add(1))
	for _, path := range []string{node, node + "/writes"} {
		_, err := conn.Create(path, nil, 0, world)
		require.NoError(t, err)
	}
	require.NoError(t, zookeeperfence.Create(t.Context(), conn, resource(node).token(), world))
	return resource(node)
}

func (r resource) token() string { return string(r) + "/token" }

// trace is an operation that history tells of.
func (r resource) trace(token uint64) *zk.CreateRequest {
	return &zk.CreateRequest{
		Path: string(r) + "/writes/" + strconv.FormatUint(token, 10) + "-", Acl: world, Flags: zk.FlagSequence,
	}
}

func (r resource) write(ctx context.Context, conn *zk.Conn, token uint64) error {
	_, err := zookeeperfence.Write(ctx, conn, r.token(), token, r.trace(token))
	return err
}

// history lists the tokens of the traces, which ZooKeeper has numbered with ten digits.
func (r resource) history(conn *zk.Conn) ([]uint64, error) {
	const digits = 10
	children, _, err := conn.Children(string(r) + "/writes")
	if err != nil {
		return nil, err
	}
	number := func(child string) string { return child[len(child)-digits:] }
	slices.SortFunc(children, func(a, b string) int { return strings.Compare(number(a), number(b)) })
	var all []uint64
	for _, child := range children {
		token, parseErr := strconv.ParseUint(child[:len(child)-digits-1], 10, 64)
		err = errors.Join(err, parseErr)
		all = append(all, token)
	}
	return all, err
}

// kept is what the token's node holds.
func (r resource) kept(t testing.TB, conn *zk.Conn) string {
	t.Helper()
	data, _, err := conn.Get(r.token())
	require.NoError(t, err)
	return string(data)
}
