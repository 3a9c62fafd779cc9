package redis

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/redisscript/wait"
	"github.com/go-locker/locker/internal/test/testserver"

	"github.com/go-locker/locker/internal/test/testwait"
)

const soon = 20 * time.Second

func clusterRunner(t *testing.T, c *testserver.RedisCluster) *runner {
	t.Helper()
	return newRunner(testwait.Closed(goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.Addrs()}), nil)(t))
}

func dial(t *testing.T, station wait.Publisher) wait.Subscription {
	t.Helper()
	return testwait.Closed(station.Dial(t.Context()))(t)
}

func wantEvent(t *testing.T, sub wait.Subscription, kind wait.EventKind, channel string) {
	t.Helper()
	event, err := sub.Receive(soon)
	if err != nil && strings.Contains(err.Error(), "unknown command") {
		t.Skipf("no sharded channels before Redis 7.0: %v", err)
	}
	require.NoError(t, err)
	assert.Equal(t, wait.Event{Kind: kind, Channel: channel}, event)
}

// go-redis would do so where the old connection was, whoever that may be by now.
func TestSubscription_isNotConnectedAnewByGoRedis(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	c := testserver.Cluster(t, testserver.RedisReplicas(0))
	rdb := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer func() { _ = rdb.Close() }()
	for name, r := range map[string]*runner{"one server": newRunner(rdb), "Cluster": clusterRunner(t, c)} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			station, err := r.Locate(ctx, "{x}")
			require.NoError(t, err)
			sub := dial(t, station)
			require.NoError(t, sub.Subscribe(ctx, "{x}:p"))
			wantEvent(t, sub, wait.Subscribed, "{x}:p")
			server := s
			if r.Sharded() {
				server = c.PrimaryOf("{x}")
			}
			admin := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
			defer func() { _ = admin.Close() }()
			require.NoError(t, admin.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err())
			_, err = sub.Receive(soon)
			require.Error(t, err)
			assert.Empty(t, admin.Do(ctx, "CLIENT", "LIST", "TYPE", "pubsub").Val())
			_, err = sub.Receive(soon)
			require.Error(t, err, "it stays so")
		})
	}
}

// go-redis panics on some of it, in the goroutine that receives.
func TestSubscription_ofWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	for _, garbage := range []string{
		"*3\r\n:1\r\n:2\r\n+three\r\n", "-ERR what\r\n", "HTTP/1.1 400\r\n\r\n", "*0\r\n", "*1\r\n$9\r\nsubscribe\r\n",
		"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n$1\r\nx\r\n", "*3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n",
		"*2\r\n$4\r\npong\r\n:1\r\n", ":1\r\n", "$-1\r\n", "*-1\r\n",
	} {
		client, server := net.Pipe()
		rdb := goredis.NewClient(&goredis.Options{
			Protocol: 2, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return client, nil },
		})
		station, err := newRunner(rdb).Locate(t.Context(), "{x}")
		require.NoError(t, err)
		sub := dial(t, station)
		go func() {
			for _, answer := range []string{"-ERR unknown command 'HELLO'\r\n", garbage} {
				_, _ = server.Read(make([]byte, 4096))
				_, _ = server.Write([]byte(answer))
			}
			_ = server.Close()
		}()
		require.NoError(t, sub.Subscribe(t.Context(), "{x}:p"))
		event, err := sub.Receive(soon)
		if err == nil { // a pong of a kind
			assert.Equal(t, wait.Event{}, event, "%q", garbage)
			_, err = sub.Receive(soon)
		}
		require.Error(t, err, "%q", garbage)
		require.NoError(t, rdb.Close())
	}
}

// One channel that is refused costs the others nothing.
func TestSubscription_ofAChannelThatIsElsewhere(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t, testserver.RedisReplicas(0))
	ctx := t.Context()
	r := clusterRunner(t, c)
	here, elsewhere := c.PrimaryOf("{x}"), c.OtherPrimary("{x}")
	station, err := r.Locate(ctx, "{x}")
	require.NoError(t, err)
	assert.Equal(t, here.Addr(), station.Name)
	sub := dial(t, station)
	c.MoveSlot("{y}", elsewhere)
	if c.PrimaryOf("{z}") != elsewhere {
		c.MoveSlot("{z}", elsewhere)
	}
	require.NoError(t, sub.Subscribe(ctx, "{y}", "{x}:1", "{z}", "{x}:2"))
	wantEvent(t, sub, wait.Unsubscribed, "{y}")
	wantEvent(t, sub, wait.Subscribed, "{x}:1")
	wantEvent(t, sub, wait.Unsubscribed, "{z}")
	wantEvent(t, sub, wait.Subscribed, "{x}:2")

	c.MoveSlot("{x}", elsewhere)
	got := map[string]bool{}
	for range 2 {
		event, err := sub.Receive(soon)
		require.NoError(t, err)
		assert.Equal(t, wait.Unsubscribed, event.Kind)
		got[event.Channel] = true
	}
	assert.Equal(t, map[string]bool{"{x}:1": true, "{x}:2": true}, got)
	require.NoError(t, sub.Unsubscribe(ctx, "{x}:1"))
	wantEvent(t, sub, wait.Unsubscribed, "{x}:1")

	station, err = r.Locate(ctx, "{x}")
	require.NoError(t, err)
	assert.Equal(t, elsewhere.Addr(), station.Name, "it is found where it is now")
}

// A replica takes sharded subscriptions, and is told nothing that a primary counts.
func TestLocate_neverFindsAReplica(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t)
	if !c.Servers()[0].HasShardChannels() {
		t.Skip("no sharded channels before Redis 7.0")
	}
	r := clusterRunner(t, c)
	for range 2 {
		_, err := r.Locate(t.Context(), "{x}")
		require.NoError(t, err)
		now := c.Failover("{x}")
		station, err := r.Locate(t.Context(), "{x}")
		require.NoError(t, err)
		assert.Equal(t, now.Addr(), station.Name)
	}
}
