package redisurl_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/redigo"
	_ "github.com/go-locker/locker/redis"
)

func TestMain(m *testing.M) { os.Exit(testserver.Tests(m).Run()) }

// What a URL says is read here, and done by each adapter.
func both(t *testing.T, test func(t *testing.T, scheme string)) {
	for _, scheme := range []string{"redis", "redigo"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			test(t, scheme)
		})
	}
}

const (
	longTTL  = 20 * time.Second // nothing expires by itself
	patience = testwait.Patience(time.Minute)
)

// open opens a Client that does not renew, and closes it when the test ends.
func open(t *testing.T, url string) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.Open(t.Context(), url, locker.WithTTL(longTTL), locker.WithoutRenewal()))(t)
}

// Each connection, also that of subscriptions, is as the URL says.
func TestAdapters_connectionsAreAsTheURLSays(t *testing.T) { both(t, connectionsAreAsTheURLSays) }

func connectionsAreAsTheURLSays(t *testing.T, scheme string) {
	const password = "p@ss/w:o?r#d%"
	dir, err := os.MkdirTemp("", "redis") // that of a test may be too deep for the path of a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "redis.sock")
	s := testserver.Redis(t, testserver.RedisConfig("unixsocket "+socket, "user app on >"+password+" ~* &* +@all"))
	connections := func() (of []string) {
		for line := range strings.Lines(fmt.Sprint(s.Do("CLIENT", "LIST"))) {
			if strings.Contains(line, " user=app ") {
				of = append(of, line)
			}
		}
		return of
	}
	for at, want := range map[string]string{s.Addr() + "/3?": "", "/3?socket=" + url.QueryEscape(socket) + "&": socket} {
		c := open(t, scheme+"://app:"+url.QueryEscape(password)+"@"+at+"prefix=shop&client_name=shop-3")
		holder, waiter := c.Mutex("x"), c.Mutex("x")
		require.NoError(t, holder.Lock(t.Context()))
		assert.Contains(t, fmt.Sprint(s.Do("INFO", "keyspace")), "db3:keys=2", "the lock and the mark")
		waits := testwait.Go(func() error { return waiter.Lock(t.Context()) })
		patience.Until(t, "it is subscribed", func() bool { return len(s.Do("PUBSUB", "CHANNELS", "{shop:x}*").([]any)) == 1 })
		assert.Greater(t, len(connections()), 1)
		for _, line := range connections() {
			assert.Contains(t, line, " name=shop-3 ")
			assert.Contains(t, line, want)
		}
		require.NoError(t, holder.Unlock(t.Context()))
		require.NoError(t, patience.Result(t, waits))
		require.NoError(t, c.Close())
		patience.Until(t, "Close has closed the connections that Open made", func() bool { return len(connections()) == 0 })
	}
}

func TestAdapters_noErrorShowsAPassword(t *testing.T) { both(t, noErrorShowsAPassword) }

func noErrorShowsAPassword(t *testing.T, scheme string) {
	const word = "Tr0ub4dor"
	s, dead := testserver.Redis(t), testserver.Redis(t)
	dead.Kill()
	topologies := []string{"", "&master_name=m&sentinel_password=" + word}
	if scheme == "redis" {
		topologies = append(topologies, "&cluster=true")
	}
	refused := map[string]string{s.Addr() + "?": "WRONGPASS"}
	for _, topology := range topologies {
		refused[dead.Addr()+"?dial_timeout=100ms"+topology] = ""
	}
	for at, want := range refused {
		err := open(t, scheme+"://app:"+word+"@"+at).Mutex("x").TryLock(t.Context())
		require.ErrorContains(t, err, want)
		require.NotErrorIs(t, err, locker.ErrHeld)
		require.NotErrorIs(t, err, locker.ErrLost)
		assert.NotContains(t, err.Error(), word)
	}
}

// Each operation is one command, of a script that the server knows, and so one round trip.
func TestAdapters_eachOperationIsOneCommand(t *testing.T) { both(t, eachOperationIsOneCommand) }

func eachOperationIsOneCommand(t *testing.T, scheme string) {
	s := testserver.Redis(t)
	c := open(t, scheme+"://"+s.Addr())
	m, other := c.Mutex("x"), c.Mutex("x")
	ctx := t.Context()
	ofScripts := []string{"time", "hmget", "hget", "hset", "hdel", "pttl", "pexpire", "zcard", "zrange"}
	ofTheTest := []string{"auth", "info", "config", "config|resetstat"}
	for _, warm := range []bool{false, true} { // at first it is told the scripts, and asked for its clock
		for _, step := range []struct {
			name string
			do   func() error
			want error
			sent int
		}{
			{"Lock", func() error { return m.Lock(ctx) }, nil, 1},
			{"TryLock of a held lock", func() error { return other.TryLock(ctx) }, locker.ErrHeld, 1},
			{"Extend", func() error { return m.Extend(ctx) }, nil, 1},
			{"Inspect", func() error { _, err := c.Inspect(ctx, "x"); return err }, nil, 1},
			{"FencingToken", func() error { _ = m.FencingToken(); return nil }, nil, 0},
			{"Unlock", func() error { return m.Unlock(ctx) }, nil, 1},
			{"TryLock of a free lock", func() error { return other.TryLock(ctx) }, nil, 1},
			{"Unlock by the other", func() error { return other.Unlock(ctx) }, nil, 1},
		} {
			s.Do("CONFIG", "RESETSTAT")
			require.ErrorIs(t, step.do(), step.want, step.name)
			sent := 0
			for name, calls := range s.Calls() {
				switch {
				case !warm, slices.Contains(ofScripts, name), slices.Contains(ofTheTest, name):
				case name == "evalsha":
					sent = calls
				default:
					assert.Fail(t, "a command that nobody expects", "%s: %s", step.name, name)
				}
			}
			assert.True(t, !warm || sent == step.sent, "%s: %d scripts", step.name, sent)
		}
	}
}

// What becomes of grants that a replica has to acknowledge, and does not.
func TestAdapters_replicas(t *testing.T) { both(t, replicas) }

func replicas(t *testing.T, scheme string) {
	primary := testserver.Redis(t)
	replica := testserver.Redis(t, testserver.RedisReplicaOf(primary))
	owner := func(s *testserver.RedisServer) string {
		return fmt.Sprint(s.Do("HMGET", script.Key("locker:x"), "owner"))
	}
	ctx := t.Context()
	c := open(t, scheme+"://"+primary.Addr()+"?replicas=1&replica_timeout=50ms")
	m, other := c.Mutex("x"), c.Mutex("x")
	require.NoError(t, m.Lock(ctx))
	require.NoError(t, m.Extend(ctx))
	assert.Equal(t, owner(primary), owner(replica), "a replica has it when Lock returns")
	replica.Detach()
	deadline := m.Hold().Deadline()
	const unheard = "0 of 1 replicas have acknowledged within 50ms"
	err := m.Extend(ctx)
	require.ErrorContains(t, err, unheard)
	require.NotErrorIs(t, err, locker.ErrLost)
	assert.Equal(t, deadline, m.Hold().Deadline(), "the old deadline stands")
	require.ErrorIs(t, other.TryLock(ctx), locker.ErrHeld, "what is no grant waits for nobody")
	require.NoError(t, m.Unlock(ctx), "nor does a release")
	free := owner(primary)
	for range 2 {
		err := m.Lock(ctx)
		require.ErrorContains(t, err, unheard)
		require.NotErrorIs(t, err, locker.ErrHeld)
		testwait.Patience(longTTL/2).Until(t, "what too few have acknowledged is given back", func() bool { return owner(primary) == free })
	}
	replica.Reattach()
	replica.WaitSynced(primary)
	require.NoError(t, m.Lock(ctx))
}

// What is no grant needs no replica, and so no right to WAIT either.
func TestAdapters_replicasWithoutTheRightToWait(t *testing.T) {
	both(t, func(t *testing.T, scheme string) {
		s := testserver.Redis(t, testserver.RedisConfig("user app on >pw ~* &* +@all -wait"))
		holder := open(t, scheme+"://"+s.Addr()).Mutex("x")
		require.NoError(t, holder.Lock(t.Context()))
		m := open(t, scheme+"://app:pw@"+s.Addr()+"?replicas=1").Mutex("x")
		require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrHeld)
		require.NoError(t, holder.Unlock(t.Context()))
		require.ErrorContains(t, m.TryLock(t.Context()), "NOPERM")
		patience.Until(t, "what was taken is released", func() bool { return holder.TryLock(t.Context()) == nil })
	})
}

// The server is slow, so that all connections are in use.
func TestAdapters_connectionsUnderLoadAreThePoolAndOneForSubscriptions(t *testing.T) {
	both(t, underLoad)
}

func underLoad(t *testing.T, scheme string) {
	s := testserver.Redis(t)
	c, err := locker.Open(t.Context(), scheme+"://"+s.Addr()+"?pool_size=5&client_name=loaded")
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	var holders []*locker.Mutex
	var waits []<-chan error
	for _, name := range []string{"x", "y", "z"} {
		holder, waiter := c.Mutex(name), c.Mutex(name)
		require.NoError(t, holder.Lock(t.Context()))
		holders, waits = append(holders, holder), append(waits, testwait.Go(func() error { return waiter.Lock(t.Context()) }))
	}
	testwait.Patience(time.Minute).Until(t, "all are subscribed", func() bool { return len(s.Do("PUBSUB", "CHANNELS").([]any)) == len(waits) })
	most := 0
	for range 3 {
		s.Do("CLIENT", "PAUSE", "300", "WRITE")
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 5 * time.Millisecond)
				m := c.Mutex(fmt.Sprint(i))
				assert.NoError(t, m.Lock(t.Context()))
				assert.NoError(t, m.Unlock(t.Context()))
			})
		}
		done := testwait.Go(func() error { all.Wait(); return nil })
		for len(done) == 0 {
			most = max(most, strings.Count(fmt.Sprint(s.Do("CLIENT", "LIST")), "name=loaded "))
			time.Sleep(5 * time.Millisecond)
		}
	}
	assert.Equal(t, 5+1, most)
	for i, holder := range holders {
		require.NoError(t, holder.Unlock(t.Context()))
		require.NoError(t, <-waits[i])
	}
}

// What it takes to be let in by a server that wants certificates.
func TestAdapters_tls(t *testing.T) { both(t, certificates) }

func certificates(t *testing.T, plain string) {
	s := testserver.Redis(t, testserver.RedisTLS())
	// An attempt may take half of the TTL, and the system's authorities take a while to load.
	harness.TLS(t, plain+"s://"+s.Addr()+"?ttl=30s", s.Certificates, testserver.NewCertificates(t))
}
