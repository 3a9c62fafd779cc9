package zookeeperfence_test

import (
	"context"
	"errors"
	"io"
	"log"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/zookeeperfence"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/zookeeper" // registers zookeeper://
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Tests(m)) }

const patient = time.Minute

var (
	eventually = testwait.Patience(patient).Until
	await      = testwait.Patience(patient).Result

	world = zk.WorldACL(zk.PermAll)
)

// connect makes a connection, and waits for its session.
func connect(t testing.TB, addrs ...string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)), zk.WithLogInfo(false))
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

func newResource(t testing.TB, conn *zk.Conn) resource {
	t.Helper()
	node := "/" + claims.Fresh()
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

func TestWrite_keepsTheRule(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	conn := connect(t, s.Addr())
	fencecheck.Run(t, func(t testing.TB) fencecheck.Fence {
		r := newResource(t, conn)
		return fencecheck.Fence{
			Write:   func(ctx context.Context, token uint64) error { return r.write(ctx, conn, token) },
			History: func(context.Context) ([]uint64, error) { return r.history(conn) },
			Spoil: func(_ context.Context, text string) error {
				_, err := conn.Set(r.token(), []byte(text), -1)
				return err
			},
			NoTokens: []string{"5\n", " 5", "-1", "18446744073709551616", "5.0", strings.Repeat("data", 1000)},
		}
	})
}

func TestWrite_returnsTheResponsesOfTheOperations(t *testing.T) {
	t.Parallel()
	conn := connect(t, testserver.SharedZooKeeper(t).Addr())
	ctx := t.Context()
	r := newResource(t, conn)
	set := &zk.SetDataRequest{Path: string(r), Data: []byte("paid"), Version: 0}
	said, err := zookeeperfence.Write(ctx, conn, r.token(), 5, r.trace(5), set)
	require.NoError(t, err)
	require.Len(t, said, 2)
	assert.Equal(t, string(r)+"/writes/5-0000000000", said[0].String)
	assert.EqualValues(t, 1, said[1].Stat.Version)

	said, err = zookeeperfence.Write(ctx, conn, r.token(), 6, r.trace(6), set)
	require.ErrorIs(t, err, zk.ErrBadVersion, "of the application's own, and so no reason to try again")
	require.Len(t, said, 2)
	require.NoError(t, said[0].Error)
	require.ErrorIs(t, said[1].Error, zk.ErrBadVersion)
	assert.Equal(t, "5", r.kept(t, conn), "nothing was done")
	seen, err := r.history(conn)
	require.NoError(t, err)
	assert.Equal(t, []uint64{5}, seen)

	said, err = zookeeperfence.Write(ctx, conn, r.token(), 7)
	require.NoError(t, err, "the token alone")
	assert.Empty(t, said)
	require.ErrorIs(t, r.write(ctx, conn, 6), fence.ErrStale)
	_, err = zookeeperfence.Write(ctx, conn, r.token(), 7, "no operation")
	require.ErrorContains(t, err, "unknown operation")
}

// It would have data compared as a token from then on: here a stale 101, after 105.
func TestWrite_refusesToSetTheTokensNode(t *testing.T) {
	t.Parallel()
	conn := connect(t, testserver.SharedZooKeeper(t).Addr())
	r := newResource(t, conn)
	for _, token := range []uint64{105, 101} {
		_, err := zookeeperfence.Write(t.Context(), conn, r.token(), token,
			r.trace(token), &zk.SetDataRequest{Path: r.token(), Data: []byte("100"), Version: -1})
		require.ErrorContains(t, err, "a node of its own")
	}
	assert.Empty(t, r.kept(t, conn))
}

func TestWrite_refusesANodeThatIsGone(t *testing.T) {
	t.Parallel()
	conn := connect(t, testserver.SharedZooKeeper(t).Addr())
	ctx := t.Context()
	r := newResource(t, conn)
	require.NoError(t, r.write(ctx, conn, 5))
	_, err := zookeeperfence.Write(ctx, conn, r.token(), 7, &zk.DeleteRequest{Path: r.token(), Version: -1})
	require.NoError(t, err, "a write may remove the token together with the resource")
	err = r.write(ctx, conn, 6)
	require.ErrorIs(t, err, fence.ErrUnknown)
	require.ErrorContains(t, err, "Create")
}

func TestCreate_leavesATokenAsItIs(t *testing.T) {
	t.Parallel()
	conn := connect(t, testserver.SharedZooKeeper(t).Addr())
	r := newResource(t, conn)
	require.NoError(t, r.write(t.Context(), conn, 5))
	require.NoError(t, zookeeperfence.Create(t.Context(), conn, r.token(), world))
	assert.Equal(t, "5", r.kept(t, conn))
	require.ErrorIs(t, zookeeperfence.Create(t.Context(), conn, string(r)+"/y/token", world), zk.ErrNoNode)
}

// overtaken has the answer to the first's reading held up while the second writes.
func overtaken(t *testing.T, p *testserver.Proxy, first, second func() error) error {
	t.Helper()
	p.HoldReplies(true)
	done := testwait.Go(first)
	const smallest = 40 // more than the answer to a ping has
	eventually(t, "the first has read", func() bool {
		_, replies := p.Held()
		return replies > smallest
	})
	require.NoError(t, second())
	p.ReleaseReplies()
	return await(t, done)
}

func TestWrite_thatPausedAfterItsReading(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	r := newResource(t, direct)
	writes := func(conn *zk.Conn, token uint64) func() error {
		return func() error { return r.write(ctx, conn, token) }
	}
	require.NoError(t, r.write(ctx, slow, 1))
	require.ErrorIs(t, overtaken(t, p, writes(slow, 2), writes(direct, 4)), fence.ErrStale, "by a newer one")
	require.ErrorIs(t, overtaken(t, p, writes(slow, 3), writes(direct, 4)), fence.ErrStale, "before it reads")
	require.NoError(t, overtaken(t, p, writes(slow, 6), writes(direct, 5)), "by an older one")
	require.NoError(t, overtaken(t, p, writes(slow, 6), writes(direct, 6)), "by its own")
	require.ErrorIs(t, overtaken(t, p, writes(slow, 6), writes(direct, 7)), fence.ErrStale, "by a newer one, when it had read its own")
	seen, err := r.history(direct)
	require.NoError(t, err)
	assert.Equal(t, []uint64{1, 4, 4, 5, 6, 6, 6, 7}, seen)
}

// What the package says of making the node anew: a version is all that ZooKeeper compares, and it
// is the same again.
func TestWrite_thatHasReadANodeWhichWasMadeAnewIsNotRefused(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	r := newResource(t, direct)
	require.NoError(t, r.write(ctx, slow, 1))
	require.NoError(t, overtaken(t, p, func() error { return r.write(ctx, slow, 2) }, func() error {
		return errors.Join(
			direct.Delete(r.token(), -1),
			zookeeperfence.Create(ctx, direct, r.token(), world),
			r.write(ctx, direct, 3),
		)
	}))
	assert.Equal(t, "2", r.kept(t, direct), "after 3")
}

// Connections break, and some outcomes are not known: no write is made after a newer one.
func TestBrokenConnections_noStaleWriteGetsIn(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, conns := connect(t, s.Addr()), []*zk.Conn{connect(t, p.Addr()), connect(t, p.Addr())}
	r, times := newResource(t, direct), 2
	if testwait.Thorough() {
		times = 5
	}
	require.NoError(t, fencecheck.Disturbed(t.Context(), fencecheck.Fence{
		Write:   func(ctx context.Context, token uint64) error { return r.write(ctx, conns[token%2], token) },
		History: func(context.Context) ([]uint64, error) { return r.history(direct) },
	}, times, p.ResetConns))
}

func TestWrite_endsWithItsContext(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, conn := connect(t, s.Addr()), connect(t, p.Addr())
	r := newResource(t, direct)
	p.HoldRequests(true)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := testwait.Go(func() error { return r.write(ctx, conn, 2) })
	cancel(locker.ErrLost)
	require.ErrorIs(t, await(t, done), locker.ErrLost)
	p.ReleaseRequests()
	require.NoError(t, r.write(t.Context(), conn, 3))
	seen, err := r.history(direct)
	require.NoError(t, err)
	assert.Equal(t, []uint64{3}, seen, "who had given up while it read does not write later")
}
