package testserver

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"
)

const (
	sentinels  = 3
	masterName = "testmaster"
)

// SentinelGroup is a primary with its replicas, and three sentinels that have another take over when
// it does not answer for 500 ms.
type SentinelGroup struct {
	group[*RedisServer] // the first was the primary at the start

	sentinels []*RedisServer
}

// RedisReplicas sets how many replicas there are of the primary of Sentinel, or of each primary of
// Cluster. There is one unless told otherwise.
func RedisReplicas(n int) RedisOption {
	return func(o *redisOptions) { o.replicas = n }
}

// SentinelConfig writes lines into the configuration files of the sentinels, where RedisConfig is
// for the servers that they watch. A password for the sentinels is "requirepass pw",
// or "user name on >pw +@all".
func SentinelConfig(lines ...string) RedisOption {
	return func(o *redisOptions) { o.sentinelConfig = append(o.sentinelConfig, lines...) }
}

// Sentinel starts a primary, its replicas and three sentinels, and returns when a failover would
// succeed. With RedisTLS all of them speak TLS only, with certificates of one authority.
func Sentinel(t testing.TB, opts ...RedisOption) *SentinelGroup {
	t.Helper()
	g := &SentinelGroup{group: group[*RedisServer]{t: t}}
	o := newRedisOptions(opts)
	primary := startRedis(t, o)
	g.servers = []*RedisServer{primary}
	o.primary, o.certs = primary, primary.Certificates
	for range o.replicas {
		g.servers = append(g.servers, startRedis(t, o))
	}
	withPorts(t, "sentinels", sentinels, func(ports []int) error { return g.startSentinels(ports, o) })
	for _, s := range g.sentinels {
		await(t, "sentinel "+s.Addr()+" knows all servers", func() error { return g.ready(s) })
	}
	return g
}

func (g *SentinelGroup) startSentinels(ports []int, o redisOptions) error {
	g.t.Helper()
	killAll(g.sentinels) // of an attempt that found a port taken
	g.sentinels = nil
	ids := make([]string, len(ports))
	for i := range ids {
		ids[i] = newNodeID()
	}
	for i, port := range ports {
		s := newRedis(g.t)
		s.name, s.port = "redis-sentinel", port
		s.needChannelRights([]string{"user " + operator + " &*"}) // and no users of Sentinel's own
		if o.tls {
			s.useTLS(o.certs)
		}
		s.args = []string{s.writeFile("sentinel.conf", g.sentinelConfig(s, ids, ports, i, o)), "--sentinel"}
		g.sentinels = append(g.sentinels, s)
	}
	// At once: who does not find another tries again after a second.
	return startAll(g.sentinels)
}

// sentinelConfig tells the i-th sentinel all that it would find out itself in a few seconds. It
// rewrites its file whenever it learns more, and so keeps that through a Restart.
func (g *SentinelGroup) sentinelConfig(s *RedisServer, ids []string, ports []int, i int, o redisOptions) []string {
	config := []string{
		"bind 127.0.0.1", "dir " + s.dir, "sentinel myid " + ids[i],
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", masterName, g.servers[0].port),
		"sentinel down-after-milliseconds " + masterName + " 500",
		// Half the time after which a failover that led nowhere is tried again.
		"sentinel failover-timeout " + masterName + " 2000",
		"user " + operator + " on >" + operator + " ~* &* +@all",
		"sentinel auth-user " + masterName + " " + operator,
		"sentinel auth-pass " + masterName + " " + operator,
		"sentinel sentinel-user " + operator, "sentinel sentinel-pass " + operator,
	}
	for _, replica := range g.servers[1:] {
		config = append(config, fmt.Sprintf("sentinel known-replica %s 127.0.0.1 %d", masterName, replica.port))
	}
	for j, port := range ports {
		if j != i {
			config = append(config, fmt.Sprintf("sentinel known-sentinel %s 127.0.0.1 %d %s", masterName, port, ids[j]))
		}
	}
	config = append(config, s.portFlag()[len("--"):]+" "+strconv.Itoa(s.port))
	return slices.Concat(config, s.tlsConfig(), o.sentinelConfig)
}

// newNodeID makes an id as Redis itself would.
func newNodeID() string {
	id := make([]byte, 20)
	_, _ = rand.Read(id) // does not fail
	return hex.EncodeToString(id)
}

// Addrs returns the addresses of the sentinels.
func (g *SentinelGroup) Addrs() []string { return addrs(g.sentinels) }

// MasterName returns the name under which the sentinels know the primary.
func (g *SentinelGroup) MasterName() string { return masterName }

// Sentinels returns the three of them. They are servers like others, to be stopped and killed.
func (g *SentinelGroup) Sentinels() []*RedisServer { return slices.Clone(g.sentinels) }

// Primary returns the server that all sentinels take for the primary, and waits until they agree.
// Sentinels that were killed or stopped do not count, here and below.
func (g *SentinelGroup) Primary() *RedisServer {
	g.t.Helper()
	return settled(g.t, "all sentinels agree", g.agreed)
}

// Replica returns a replica of the server that all sentinels take for the primary, and waits until they agree.
func (g *SentinelGroup) Replica() *RedisServer {
	g.t.Helper()
	primary := g.Primary()
	for _, s := range g.servers {
		if s != primary {
			return s
		}
	}
	g.t.Fatalf("testserver: there is no replica")
	return nil
}

// Failover makes the sentinels promote a replica, although the old one may work, and returns the
// new one when it accepts writes and all sentinels agree. The old one is not asked: it accepts
// writes, too, until the sentinels make it a replica some ten seconds later.
func (g *SentinelGroup) Failover() *RedisServer {
	g.t.Helper()
	old := g.Primary()
	var asked time.Time
	return g.awaitOther(old, func() error {
		if time.Since(asked) < askAgain {
			return nil
		}
		i := slices.IndexFunc(g.sentinels, (*RedisServer).responsive)
		if i < 0 {
			return errors.New("no sentinel runs")
		}
		_, err := g.sentinels[i].do("SENTINEL", "FAILOVER", masterName)
		if err == nil {
			asked = time.Now()
		}
		return err
	})
}

// WaitFailover returns the server that has taken over from old, when it accepts writes and all
// sentinels agree.
func (g *SentinelGroup) WaitFailover(old *RedisServer) *RedisServer {
	g.t.Helper()
	return g.awaitOther(old, func() error { return nil })
}

// awaitOther calls try until another server than old is the primary.
func (g *SentinelGroup) awaitOther(old *RedisServer, try func() error) *RedisServer {
	g.t.Helper()
	return settled(g.t, "another primary than "+old.Addr()+" has taken over", func() (*RedisServer, error) {
		primary, err := g.agreed()
		switch {
		case err != nil:
			return nil, err
		case primary == old:
			return nil, errors.Join(errors.New("it is the primary still"), try())
		}
		_, err = primary.do("DEL", operator) // a write that changes nothing
		return primary, err
	})
}

func (g *SentinelGroup) agreed() (*RedisServer, error) {
	var primary string
	for _, s := range g.sentinels {
		if !s.responsive() {
			continue
		}
		reply, err := s.do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
		if err != nil {
			return nil, fmt.Errorf("sentinel %s: %w", s.Addr(), err)
		}
		pair, _ := reply.([]any)
		if len(pair) != 2 {
			return nil, fmt.Errorf("sentinel %s: the primary is %v", s.Addr(), reply)
		}
		addr := net.JoinHostPort(fmt.Sprint(pair[0]), fmt.Sprint(pair[1]))
		if primary != "" && addr != primary {
			return nil, fmt.Errorf("the primary is %s, or %s", primary, addr)
		}
		primary = addr
	}
	for _, s := range g.servers {
		if s.Addr() == primary {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server has the address %q", primary)
}

// ready returns nil when sentinel s has spoken to the primary and to each replica. It may still be
// about to reach the other sentinels: it tries once a second, and knows them.
func (g *SentinelGroup) ready(s *RedisServer) error {
	for _, known := range []struct {
		command []string
		flags   string
		n       int
	}{
		{[]string{"SENTINEL", "MASTERS"}, "master", 1},
		{[]string{"SENTINEL", "REPLICAS", masterName}, "slave", len(g.servers) - 1},
	} {
		reply, err := s.do(known.command...)
		if err != nil {
			return err
		}
		list, _ := reply.([]any)
		if len(list) != known.n {
			return fmt.Errorf("%v: it knows %d of %d", known.command, len(list), known.n)
		}
		for _, item := range list {
			if f := fieldsOf(item); f["flags"] != known.flags || f["runid"] == "" {
				return fmt.Errorf("%v: of %s:%s it says %q", known.command, f["ip"], f["port"], f["flags"])
			}
		}
	}
	return nil
}

// fieldsOf makes a map of a list of names and values.
func fieldsOf(reply any) map[string]string {
	list, _ := reply.([]any)
	fields := make(map[string]string)
	for pair := range slices.Chunk(list, 2) {
		if len(pair) == 2 {
			fields[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
		}
	}
	return fields
}
