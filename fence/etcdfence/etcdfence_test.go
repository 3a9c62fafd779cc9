package etcdfence_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/etcdfence"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Tests(m)) }

func connect(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	return testwait.Closed(clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()}))(t)
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

func TestWrite_returnsTheResponsesOfTheOperations(t *testing.T) {
	t.Parallel()
	cli := connect(t, testserver.SharedEtcd(t).Addr())
	ctx := t.Context()
	x := claims.Fresh()
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
	kept, err := cli.Get(ctx, x+"/token")
	require.NoError(t, err)
	assert.Equal(t, "00000000000000000007", string(kept.Kvs[0].Value))
	_, err = etcdfence.Write(ctx, cli, x+"/token", 6, ops...)
	require.ErrorIs(t, err, fence.ErrStale)
	assert.ErrorContains(t, err, fmt.Sprintf("%q", x+"/token"))
}

func TestWrite_keepsTheRule(t *testing.T) {
	t.Parallel()
	cli := connect(t, testserver.SharedEtcd(t).Addr())
	fencecheck.Run(t, func(t testing.TB) fencecheck.Fence {
		x := claims.Fresh()
		return fencecheck.Fence{
			Write:   func(ctx context.Context, token uint64) error { return write(ctx, cli, x, token) },
			History: func(ctx context.Context) ([]uint64, error) { return history(ctx, cli, x) },
			Spoil: func(ctx context.Context, text string) error {
				_, err := cli.Put(ctx, x+"/token", text)
				return err
			},
			NoTokens: []string{
				"", "42", "00000000000000000000", " 00000000000000000001", "18446744073709551616",
				"18446744073709551615 ", strings.Repeat("data", 1000),
			},
		}
	})
}

// After a token that others have put with a lease, the next token has none: it stays when the lease
// ends.
func TestWrite_ofATokenWithALease(t *testing.T) {
	t.Parallel()
	cli := connect(t, testserver.SharedEtcd(t).Addr())
	ctx := t.Context()
	x := claims.Fresh()
	lease, err := cli.Grant(ctx, 60)
	require.NoError(t, err)
	_, err = cli.Put(ctx, x+"/token", fmt.Sprintf("%020d", 43), clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	require.ErrorIs(t, write(ctx, cli, x, 42), fence.ErrStale)
	require.NoError(t, write(ctx, cli, x, 44))
	_, err = cli.Revoke(ctx, lease.ID)
	require.NoError(t, err)
	require.ErrorIs(t, write(ctx, cli, x, 43), fence.ErrStale)
}

// The leader is killed, and comes back: what was agreed on outlives it.
func TestRestarts_noStaleWriteGetsIn(t *testing.T) {
	t.Parallel()
	x := claims.Fresh()
	g := testserver.EtcdCluster(t, 3)
	cli := connect(t, g.Addrs()...)
	require.NoError(t, fencecheck.Disturbed(t.Context(), fencecheck.Fence{
		Write: func(ctx context.Context, token uint64) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return write(ctx, cli, x, token)
		},
		History: func(ctx context.Context) ([]uint64, error) { return history(ctx, cli, x) },
	}, 2, func() { g.Leader().Restart() }))
}

func TestWrite_thatArrivesLateIsRefused(t *testing.T) {
	t.Parallel()
	x := claims.Fresh()
	s := testserver.SharedEtcd(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	require.NoError(t, write(ctx, slow, x, 1))
	p.HoldRequests(true)
	done := testwait.Go(func() error { return write(ctx, slow, x, 2) })
	const smallest = 60 // more than an acknowledgement, or a ping, has
	testwait.Patience(time.Minute).Until(t, "the first request is on its way", func() bool {
		requests, _ := p.Held()
		return requests > smallest
	})
	require.NoError(t, write(ctx, direct, x, 3))
	p.ReleaseRequests()
	require.ErrorIs(t, testwait.Patience(time.Minute).Result(t, done), fence.ErrStale)
	seen, err := history(ctx, direct, x)
	require.NoError(t, err)
	assert.Equal(t, []uint64{1, 3}, seen)
}
