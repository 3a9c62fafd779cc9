package etcd_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// A member comes, and one that the clients speak to goes for good.
func TestCluster_membersChangeWhileHeldAndWaitedFor(t *testing.T) {
	testwait.OnlyNightly(t, "to a client a member that goes is one that is down")
	t.Parallel()
	g := three(t, testserver.EtcdArgs("--strict-reconfig-check=false"))
	for _, which := range []string{"the leader", "a follower"} {
		t.Run(which, func(t *testing.T) {
			goes := g.Leader()
			if which == "a follower" {
				goes = others(g, goes)[0]
			}
			stays := others(g, goes)
			url := "etcd://" + goes.Addr() + "," + stays[0].Addr() + "?ttl=6s"
			m, next := openURL(t, url).Mutex("x"), openURL(t, url).Mutex("x")
			direct := connect(t, stays[0].Addr(), stays[1].Addr())
			require.NoError(t, m.Lock(t.Context()))
			waiting := async(func() error { return next.Lock(t.Context()) })
			eventually(t, "it waits", func() bool { return len(queue(t, direct, "x")) == 2 })
			stands := queue(t, direct, "x")

			added := g.Add()
			g.Remove(goes)
			token, deadline := m.FencingToken(), m.Deadline()
			require.NotZero(t, token)
			eventually(t, "the hold is renewed", func() bool { return m.Deadline().After(deadline.Add(2*time.Second)) || fired(m) })
			assert.Equal(t, token, m.FencingToken())
			assert.Equal(t, stands, queue(t, direct, "x"), "the waiter has kept its place")
			last := openURL(t, added.URL()+"?ttl=6s").Mutex("x")
			require.ErrorIs(t, last.TryLock(t.Context()), locker.ErrHeld)
			require.NoError(t, m.Unlock(t.Context()))
			require.NoError(t, await(t, waiting))
			assert.Greater(t, next.FencingToken(), token)
			token = next.FencingToken()
			require.NoError(t, next.Unlock(t.Context()))
			require.NoError(t, last.Lock(t.Context()))
			assert.Greater(t, last.FencingToken(), token)
			require.NoError(t, last.Unlock(t.Context()))
			assert.Empty(t, queue(t, direct, "x"))
		})
	}
}

// Tokens of authentication expire, and become void with every change of a user or a role, while a lock is held and waited for.
func TestAuth_tokensExpireAndAreRevokedWhileHeldAndWaitedFor(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t, testserver.EtcdAuth("alice", "s3cret"), testserver.EtcdArgs("--auth-token-ttl=1"))
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Username: "root", Password: "s3cret", Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { _ = root.Close() }()
	url := fmt.Sprintf("etcd://alice:s3cret@%s?ttl=4s", s.Addr())
	idle := openURL(t, url, locker.WithPrefix("locker")).Mutex("idle")
	m := openURL(t, url, locker.WithPrefix("locker")).Mutex("x")
	next := openURL(t, url, locker.WithPrefix("locker")).Mutex("x")
	queue := func() []string { return keys(t, root, "locker:x/") }
	require.NoError(t, m.Lock(t.Context()))
	waiting := async(func() error { return next.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return len(queue()) == 2 })
	stands := queue()
	token, began := m.FencingToken(), m.Deadline()
	for i := range 2 {
		_, err := root.RoleAdd(t.Context(), fmt.Sprint("role", i))
		require.NoError(t, err)
		renewed := began.Add(time.Duration(1+i) * 1500 * time.Millisecond)
		eventually(t, "the hold is renewed", func() bool { return m.Deadline().After(renewed) || fired(m) })
	}
	assert.Equal(t, token, m.FencingToken())
	assert.Equal(t, stands, queue(), "the waiter has kept its place")
	require.NoError(t, idle.Lock(t.Context()), "whose token has long expired")
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	assert.Greater(t, next.FencingToken(), token)
	require.NoError(t, next.Unlock(t.Context()))
	require.NoError(t, idle.Unlock(t.Context()))
}

// A restored cluster counts from an earlier revision: that tokens do not rise is as documented, and so is what helps.
func TestRestore_tokensRiseOnlyWithATokenBase(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	lock := func(c *locker.Client) uint64 {
		m := c.Mutex("x")
		require.NoError(t, lockAtLast(t, m))
		defer func() { require.NoError(t, m.Unlock(t.Context())) }()
		return m.FencingToken()
	}
	c := newClient(t, s.Addr(), locker.WithTTL(time.Second), locker.WithoutRenewal())
	lock(c)
	restore := s.Backup()
	var last uint64
	for range 20 {
		last = lock(c)
	}
	restore()
	assert.LessOrEqual(t, lock(c), last)
	based := newClient(t, s.Addr(), locker.WithTTL(time.Second), locker.WithoutRenewal(), locker.WithTokenBase(last))
	first := lock(based)
	assert.Greater(t, first, last)
	assert.Greater(t, lock(based), first)
}

// Sessions lose their server at any moment of a keepalive. None of the deadlines is later than the server's.
func TestDeadline_isNeverLaterThanTheServers(t *testing.T) {
	t.Parallel()
	const n = 16
	s := testserver.SharedEtcd(t)
	direct := connect(t, s.Addr())
	var wg sync.WaitGroup
	for i := range n {
		name := fmt.Sprint("x", i)
		proxy := testserver.NewProxy(t, s.Addr())
		m := newClient(t, proxy.Addr(), locker.WithTTL(time.Duration(2+i%2)*time.Second)).Mutex(name)
		require.NoError(t, lockAtLast(t, m))
		gone := vanished(t, direct, queue(t, direct, name)[0])
		cut := []func(){
			proxy.Sever, func() { proxy.DropReplies(true) }, func() { proxy.HoldRequests(true) }, func() { proxy.HoldReplies(true) },
		}[i/2%4]
		after := rand.N(2 * time.Second)
		wg.Go(func() {
			time.Sleep(after)
			cut()
			<-m.Lost()
			lost, deadline := time.Now(), m.Deadline()
			at := <-gone
			assert.True(t, deadline.Before(at), "%s: the deadline was %v after the server's", name, deadline.Sub(at))
			assert.True(t, lost.Before(at), "%s: lost %v after the server removed the key", name, lost.Sub(at))
			assert.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		})
	}
	wg.Wait()
}
