package etcdfence_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/etcdfence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Tests(m)) }

const patient = time.Minute

var (
	eventually  = testwait.Patience(patient).Until
	await       = testwait.Patience(patient).Result
	withTimeout = testwait.Context
)

func connect(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	return connectWith(t, clientv3.Config{Endpoints: addrs})
}

func connectWith(t testing.TB, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Logger = zap.NewNop()
	cli, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// made counts the keys of all tests, which have one server in common.
var made atomic.Int64

// fresh returns the beginning of keys that no other test has.
func fresh() string { return fmt.Sprint("x", made.Add(1)) }

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
	t.Parallel()
	cli := connect(t, testserver.SharedEtcd(t).Addr())
	for name, kv := range map[string]clientv3.KV{"a client": cli, "a namespace": namespace.NewKV(cli, "ns/")} {
		t.Run(name, func(t *testing.T) {
			fencecheck.Run(t, func(t testing.TB) fencecheck.Fence {
				x := fresh()
				return fencecheck.Fence{
					Write:   func(ctx context.Context, token uint64) error { return write(ctx, kv, x, token) },
					History: func(ctx context.Context) ([]uint64, error) { return history(ctx, kv, x) },
					Spoil: func(ctx context.Context) error {
						_, err := kv.Put(ctx, x+"/token", "no token")
						return err
					},
				}
			})
		})
	}
}

func TestWrite_isOneRequest_andOf0None(t *testing.T) {
	t.Parallel()
	s := testserver.SharedEtcd(t)
	var requests atomic.Int64
	count := grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		requests.Add(1)
		return invoke(ctx, method, req, reply, cc, opts...)
	})
	cli := connectWith(t, clientv3.Config{Endpoints: []string{s.Addr()}, DialOptions: []grpc.DialOption{count}})
	ctx := t.Context()
	x := fresh()
	require.NoError(t, write(ctx, cli, x, 2))
	require.NoError(t, write(ctx, cli, x, 2))
	require.ErrorIs(t, write(ctx, cli, x, 1), fence.ErrStale)
	assert.EqualValues(t, 3, requests.Swap(0))
	require.ErrorIs(t, write(ctx, cli, x, 0), fence.ErrStale)
	require.ErrorIs(t, write(ctx, nil, x, 0), fence.ErrStale)
	assert.Zero(t, requests.Load())
}

func TestWrite_returnsTheResponsesOfTheOperations(t *testing.T) {
	t.Parallel()
	cli := connect(t, testserver.SharedEtcd(t).Addr())
	ctx := t.Context()
	x := fresh()
	ops := []clientv3.Op{
		clientv3.OpGet(x),
		clientv3.OpPut(x, "1", clientv3.WithPrevKV()),
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Version(x+"/y"), "=", 0)}, []clientv3.Op{clientv3.OpPut(x+"/y", "")}, nil),
	}
	for i, token := range []uint64{1, 1, 2} {
		resp, err := etcdfence.Write(ctx, cli, x+"/token", token, ops...)
		require.NoError(t, err)
		assert.True(t, resp.Succeeded)
		require.Len(t, resp.Responses, 3)
		assert.Len(t, resp.Responses[0].GetResponseRange().Kvs, min(i, 1))
		assert.Equal(t, i > 0, resp.Responses[1].GetResponsePut().PrevKv != nil)
		assert.Equal(t, i == 0, resp.Responses[2].GetResponseTxn().Succeeded)
		assert.Equal(t, resp.Responses[1].GetResponsePut().Header.Revision, resp.Header.Revision)
	}
	resp, err := etcdfence.Write(ctx, cli, x+"/token", 7)
	require.NoError(t, err, "the token alone")
	assert.Empty(t, resp.Responses)
	assert.Equal(t, "00000000000000000007", value(t, cli, x+"/token"))
	_, err = etcdfence.Write(ctx, cli, x+"/token", 6, ops...)
	require.ErrorIs(t, err, fence.ErrStale)
	assert.ErrorContains(t, err, fmt.Sprintf("%q", x+"/token"))
}

// A value that is no token lets nobody through.
func TestWrite_refusesGarbage(t *testing.T) {
	t.Parallel()
	cli := connect(t, testserver.SharedEtcd(t).Addr())
	ctx := t.Context()
	x := fresh()
	for _, garbage := range []string{
		"", "5", "42", "token", "00000000000000000000", "0000", "\x00", "-1", " 00000000000000000001",
		"18446744073709551616", "99999999999999999999", "18446744073709551615 ", strings.Repeat("data", 1000),
	} {
		_, err := cli.Put(ctx, x+"/token", garbage)
		require.NoError(t, err)
		err = write(ctx, cli, x, 43)
		require.ErrorIs(t, err, fence.ErrUnknown, "%q", garbage)
		assert.Less(t, len(err.Error()), 500)
		require.NotErrorIs(t, err, fence.ErrStale, "%q", garbage)
		require.ErrorContains(t, err, fmt.Sprintf("etcdfence: %q: ", x+"/token"))
	}
	_, err := cli.Put(ctx, x+"/token", "00000000000000000043")
	require.NoError(t, err, "by hand")
	require.ErrorIs(t, write(ctx, cli, x, 42), fence.ErrStale)
	require.NoError(t, write(ctx, cli, x, 43))
}

func TestWrite_leavesTheTokensKeyToNoLease_andToNoOperation(t *testing.T) {
	t.Parallel()
	cli := connect(t, testserver.SharedEtcd(t).Addr())
	ctx := t.Context()
	x := fresh()
	lease, err := cli.Grant(ctx, 60)
	require.NoError(t, err)
	_, err = cli.Put(ctx, x+"/token", fmt.Sprintf("%020d", 1), clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	require.NoError(t, write(ctx, cli, x, 2))
	_, err = cli.Revoke(ctx, lease.ID)
	require.NoError(t, err)
	require.ErrorIs(t, write(ctx, cli, x, 1), fence.ErrStale)

	for _, op := range []clientv3.Op{clientv3.OpPut(x+"/token", ""), clientv3.OpDelete(x+"/", clientv3.WithPrefix())} {
		_, err = etcdfence.Write(ctx, cli, x+"/token", 3, op)
		require.ErrorContains(t, err, "duplicate key")
	}
	assert.Equal(t, fmt.Sprintf("%020d", 2), value(t, cli, x+"/token"))
}

// The rights that the documentation names are enough, and needed.
func TestWrite_needsTheRightsOfTheTokensKey(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t, testserver.EtcdAuth("me", "secret")) // whose keys begin with locker:
	cli := connectWith(t, clientv3.Config{Endpoints: []string{s.Addr()}, Username: "me", Password: "secret"})
	ctx := t.Context()
	require.NoError(t, write(ctx, cli, "locker:x", 5))
	require.ErrorIs(t, write(ctx, cli, "locker:x", 4), fence.ErrStale)
	err := write(ctx, cli, "x", 5)
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	require.ErrorContains(t, err, `etcdfence: "x/token": `)
	_, err = etcdfence.Write(ctx, cli, "x/token", 5, clientv3.OpPut("locker:y", ""))
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "the token's key alone")
	_, err = etcdfence.Write(ctx, cli, "locker:x/token", 5, clientv3.OpPut("y", ""))
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "what is written alone")
}

// What was agreed on outlives the leader.
func TestToken_survivesTheLossOfTheLeader(t *testing.T) {
	t.Parallel()
	g := testserver.EtcdCluster(t, 3)
	cli := connect(t, g.Addrs()...)
	require.NoError(t, write(t.Context(), cli, "x", 9))
	g.Leader().Kill()
	eventually(t, "there is another leader", func() bool {
		err := write(withTimeout(t, 500*time.Millisecond), cli, "x", 8)
		require.Error(t, err)
		return errors.Is(err, fence.ErrStale)
	})
	eventually(t, "a newer one writes", func() bool { return write(withTimeout(t, time.Second), cli, "x", 10) == nil })
}
