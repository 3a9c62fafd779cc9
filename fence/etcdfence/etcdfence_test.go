package etcdfence_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/etcdfence"
	"github.com/go-locker/locker/internal/fencecheck"
	"github.com/go-locker/locker/internal/testserver"
	"github.com/go-locker/locker/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patient = time.Minute

var (
	eventually  = testwait.Patience(patient).Until
	await       = testwait.Patience(patient).Result
	withTimeout = testwait.Context
)

func connect(t testing.TB, addr string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop(), DialOptions: opts})
	require.NoError(t, err)
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// write leaves a trace of each write, so that history can tell of them.
func write(ctx context.Context, kv clientv3.KV, resource string, token uint64) error {
	_, err := etcdfence.Write(ctx, kv, resource+"/token", token,
		clientv3.OpPut(resource+"/writes/"+rand.Text(), strconv.FormatUint(token, 10)))
	return err
}

func history(ctx context.Context, kv clientv3.KV, resource string) ([]uint64, error) {
	resp, err := kv.Get(ctx, resource+"/writes/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	if err != nil {
		return nil, err
	}
	var all []uint64
	for _, entry := range resp.Kvs {
		token, err := strconv.ParseUint(string(entry.Value), 10, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, token)
	}
	return all, nil
}

func value(t testing.TB, kv clientv3.KV, key string) string {
	t.Helper()
	resp, err := kv.Get(t.Context(), key)
	require.NoError(t, err)
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

func TestWrite_keepsTheRule(t *testing.T) {
	cli := connect(t, testserver.Etcd(t).Addr())
	for name, kv := range map[string]clientv3.KV{"a client": cli, "a namespace": namespace.NewKV(cli, "ns/")} {
		t.Run(name, func(t *testing.T) {
			fencecheck.Run(t, func(t testing.TB) fencecheck.Fence {
				return fencecheck.Fence{
					Write:   func(ctx context.Context, token uint64) error { return write(ctx, kv, t.Name(), token) },
					History: func(ctx context.Context) ([]uint64, error) { return history(ctx, kv, t.Name()) },
				}
			})
		})
	}
}

func TestWrite_isOneRequest_andOf0None(t *testing.T) {
	s := testserver.Etcd(t)
	var requests atomic.Int64
	cli := connect(t, s.Addr(), grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		requests.Add(1)
		return invoke(ctx, method, req, reply, cc, opts...)
	}))
	ctx := t.Context()
	require.NoError(t, write(ctx, cli, "x", 2))
	require.NoError(t, write(ctx, cli, "x", 2))
	require.ErrorIs(t, write(ctx, cli, "x", 1), fence.ErrStale)
	assert.EqualValues(t, 3, requests.Swap(0))
	require.ErrorIs(t, write(ctx, cli, "x", 0), fence.ErrStale)
	require.ErrorIs(t, write(ctx, nil, "x", 0), fence.ErrStale)
	assert.Zero(t, requests.Load())
}

func TestWrite_returnsTheResponsesOfTheOperations(t *testing.T) {
	cli := connect(t, testserver.Etcd(t).Addr())
	ctx := t.Context()
	ops := []clientv3.Op{
		clientv3.OpGet("x"),
		clientv3.OpPut("x", "1", clientv3.WithPrevKV()),
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Version("y"), "=", 0)}, []clientv3.Op{clientv3.OpPut("y", "")}, nil),
	}
	for i, token := range []uint64{1, 1, 2} {
		resp, err := etcdfence.Write(ctx, cli, "token", token, ops...)
		require.NoError(t, err)
		assert.True(t, resp.Succeeded)
		require.Len(t, resp.Responses, 3)
		assert.Len(t, resp.Responses[0].GetResponseRange().Kvs, min(i, 1))
		assert.Equal(t, i > 0, resp.Responses[1].GetResponsePut().PrevKv != nil)
		assert.Equal(t, i == 0, resp.Responses[2].GetResponseTxn().Succeeded)
		assert.EqualValues(t, i+2, resp.Header.Revision)
	}
	resp, err := etcdfence.Write(ctx, cli, "token", 7)
	require.NoError(t, err, "the token alone")
	assert.Empty(t, resp.Responses)
	assert.Equal(t, "00000000000000000007", value(t, cli, "token"))
	_, err = etcdfence.Write(ctx, cli, "token", 6, ops...)
	require.ErrorIs(t, err, fence.ErrStale)
	assert.ErrorContains(t, err, `"token"`)
}

// A value that is no token lets nobody through.
func TestWrite_refusesGarbage(t *testing.T) {
	cli := connect(t, testserver.Etcd(t).Addr())
	ctx := t.Context()
	for _, garbage := range []string{
		"", "5", "42", "token", "00000000000000000000", "0000", "\x00", "-1", " 00000000000000000001",
		"18446744073709551616", "99999999999999999999", "18446744073709551615 ",
	} {
		_, err := cli.Put(ctx, "x/token", garbage)
		require.NoError(t, err)
		err = write(ctx, cli, "x", 43)
		require.Error(t, err, "%q", garbage)
		require.NotErrorIs(t, err, fence.ErrStale, "%q", garbage)
		require.ErrorContains(t, err, "no token", "%q", garbage)
	}
	_, err := cli.Put(ctx, "x/token", "00000000000000000043")
	require.NoError(t, err, "by hand")
	require.ErrorIs(t, write(ctx, cli, "x", 42), fence.ErrStale)
	require.NoError(t, write(ctx, cli, "x", 43))
}

func TestWrite_leavesTheTokensKeyToNoLease_andToNoOperation(t *testing.T) {
	cli := connect(t, testserver.Etcd(t).Addr())
	ctx := t.Context()
	lease, err := cli.Grant(ctx, 60)
	require.NoError(t, err)
	_, err = cli.Put(ctx, "x/token", fmt.Sprintf("%020d", 1), clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	require.NoError(t, write(ctx, cli, "x", 2))
	_, err = cli.Revoke(ctx, lease.ID)
	require.NoError(t, err)
	require.ErrorIs(t, write(ctx, cli, "x", 1), fence.ErrStale)

	for _, op := range []clientv3.Op{clientv3.OpPut("x/token", ""), clientv3.OpDelete("x/", clientv3.WithPrefix())} {
		_, err = etcdfence.Write(ctx, cli, "x/token", 3, op)
		require.ErrorContains(t, err, "duplicate key")
	}
	assert.Equal(t, fmt.Sprintf("%020d", 2), value(t, cli, "x/token"))
}

// The rights that the documentation names are enough, and needed.
func TestWrite_needsTheRightsOfTheTokensKey(t *testing.T) {
	s := testserver.Etcd(t, testserver.EtcdAuth("me", "secret")) // whose keys begin with locker:
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.Addr()}, Logger: zap.NewNop(), Username: "me", Password: "secret",
	})
	require.NoError(t, err)
	defer func() { _ = cli.Close() }()
	ctx := t.Context()
	require.NoError(t, write(ctx, cli, "locker:x", 5))
	require.ErrorIs(t, write(ctx, cli, "locker:x", 4), fence.ErrStale)
	require.ErrorIs(t, write(ctx, cli, "x", 5), rpctypes.ErrPermissionDenied)
	_, err = etcdfence.Write(ctx, cli, "x/token", 5, clientv3.OpPut("locker:y", ""))
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "the token's key alone")
	_, err = etcdfence.Write(ctx, cli, "locker:x/token", 5, clientv3.OpPut("y", ""))
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "what is written alone")
}

// late has the request of the first reach the server when the second has been answered.
func late(t *testing.T, p *testserver.Proxy, first, second func() error) error {
	t.Helper()
	p.HoldRequests(true)
	done := testwait.Go(first)
	const smallest = 60 // more than an acknowledgement, or a ping, has
	eventually(t, "the first request is on its way", func() bool {
		requests, _ := p.Held()
		return requests > smallest
	})
	require.NoError(t, second())
	p.ReleaseRequests()
	return await(t, done)
}

func TestWrite_thatArrivesLateIsRefused(t *testing.T) {
	s := testserver.Etcd(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	require.NoError(t, write(ctx, slow, "x", 1))
	err := late(t, p, func() error { return write(ctx, slow, "x", 2) }, func() error { return write(ctx, direct, "x", 3) })
	require.ErrorIs(t, err, fence.ErrStale)
	seen, err := history(ctx, direct, "x")
	require.NoError(t, err)
	assert.Equal(t, []uint64{1, 3}, seen)
}

// What the fence is for: who looks first and writes then is overtaken between the two, and the history shows it.
func TestCheckThenWrite_isOvertaken(t *testing.T) {
	s := testserver.Etcd(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	require.NoError(t, write(ctx, slow, "x", 1))
	newest, err := strconv.ParseUint(value(t, slow, "x/token"), 10, 64)
	require.NoError(t, err)
	require.NoError(t, fence.Check("x", 2, newest))
	err = late(t, p, func() error {
		_, err := slow.Put(ctx, "x/writes/naive", "2")
		return err
	}, func() error { return write(ctx, direct, "x", 3) })
	require.NoError(t, err)
	seen, err := history(ctx, direct, "x")
	require.NoError(t, err)
	assert.Error(t, fencecheck.Rising(seen), "%d", seen)
}

// The reply is lost: the outcome is not known, and the same write again has the same effect.
func TestLostReply_isAnError_andTheSameWriteAgainIsNot(t *testing.T) {
	s := testserver.Etcd(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, cli := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	put := func() error {
		_, err := etcdfence.Write(ctx, cli, "token", 5, clientv3.OpPut("x", "five"))
		return err
	}
	_, err := cli.Get(ctx, "x")
	require.NoError(t, err, "sets up a connection")
	p.DropReplies(true)
	done := testwait.Go(put)
	eventually(t, "the server has written", func() bool { return value(t, direct, "x") == "five" })
	p.DropReplies(false)
	p.ResetConns()
	err = await(t, done)
	require.Error(t, err)
	require.NotErrorIs(t, err, fence.ErrStale)
	require.NoError(t, put())
	assert.Equal(t, "five", value(t, direct, "x"))
}

func TestServerAway_isAnErrorWithinTheContext(t *testing.T) {
	s := testserver.Etcd(t)
	cli := connect(t, s.Addr())
	require.NoError(t, write(t.Context(), cli, "x", 1))
	s.Stop()
	defer s.Continue()
	require.ErrorIs(t, write(withTimeout(t, 200*time.Millisecond), cli, "x", 2), context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(t.Context())
	done := testwait.Go(func() error { return write(ctx, cli, "x", 2) })
	cancel()
	require.ErrorIs(t, await(t, done), context.Canceled)
}

// What was agreed on outlives the leader.
func TestToken_survivesTheLossOfTheLeader(t *testing.T) {
	g := testserver.EtcdCluster(t, 3)
	cli, err := clientv3.New(clientv3.Config{Endpoints: g.Addrs(), Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { _ = cli.Close() }()
	require.NoError(t, write(t.Context(), cli, "x", 9))
	g.Leader().Kill()
	eventually(t, "there is another leader", func() bool {
		err := write(withTimeout(t, 500*time.Millisecond), cli, "x", 8)
		require.Error(t, err)
		return errors.Is(err, fence.ErrStale)
	})
	eventually(t, "a newer one writes", func() bool { return write(withTimeout(t, time.Second), cli, "x", 10) == nil })
}

// With a real lock: a holder whose session ends, and its successor.
func TestLock_onTheSameCluster(t *testing.T) {
	s := testserver.Etcd(t)
	cli := connect(t, s.Addr())
	ctx := t.Context()
	client, err := etcd.New(cli, locker.WithTTL(2*time.Second), locker.WithoutRenewal())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	m, next := client.Mutex("x"), client.Mutex("x")
	require.NoError(t, m.Lock(ctx))
	stale := m.FencingToken()
	require.NoError(t, write(ctx, cli, "x", stale))
	require.NoError(t, next.Lock(ctx), "after the lapse of the first")
	require.NoError(t, write(ctx, cli, "x", stale), "nobody has written since")
	require.NoError(t, write(ctx, cli, "x", next.FencingToken()))
	require.ErrorIs(t, write(ctx, cli, "x", stale), fence.ErrStale)
	require.NoError(t, next.Unlock(ctx))
	require.ErrorIs(t, m.Unlock(ctx), locker.ErrLost)
	require.ErrorIs(t, write(ctx, cli, "x", m.FencingToken()), fence.ErrStale, "the token of nobody")
}
