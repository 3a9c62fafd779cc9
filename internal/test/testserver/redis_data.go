package testserver

import (
	"os"
	"path/filepath"
	"strconv"
)

// RedisPersistent makes the server write all data to a file before it answers. They outlive a Kill, until Wipe. The file is in
// memory, where the system has that: a disk that is busy would hold up every answer.
func RedisPersistent() RedisOption {
	return func(o *redisOptions) {
		o.persistent = true
		o.args = append(o.args, "--appendonly", "yes", "--appendfsync", "always")
	}
}

// moveToMemory comes before the server has any files.
func (s *RedisServer) moveToMemory() {
	s.t.Helper()
	s.dir = MemoryDir(s.t)
	s.t.Cleanup(s.kill) // before the directory is removed
}

// Wipe removes the data of a server that was killed.
func (s *RedisServer) Wipe() {
	s.t.Helper()
	s.wipe(filepath.Join(s.dir, "appendonlydir"))
	if err := os.RemoveAll(filepath.Join(s.dir, "appendonly.aof")); err != nil { // of Redis 6
		s.t.Fatalf("testserver: %v", err)
	}
}

// Do sends a command, as a user who may do everything, and returns its reply: a string, an int64, nil, or an
// []any of these.
func (s *RedisServer) Do(args ...string) any {
	s.t.Helper()
	return s.must(args...)
}

// Follow makes the server a replica of primary, for good, and returns when it is in step.
func (s *RedisServer) Follow(primary *RedisServer) {
	s.t.Helper()
	s.Reattach() // since a Detach its configuration file may say that it is not
	s.must("REPLICAOF", "127.0.0.1", strconv.Itoa(primary.port))
	s.must("CONFIG", "REWRITE")
	s.WaitSynced(primary)
}

// Restart kills the primary and its replicas and starts them again, with the data that they have kept. It returns
// when they are in step. The sentinels go on.
func (g *SentinelGroup) Restart() {
	g.t.Helper()
	primary := g.Primary()
	killAll(g.servers)
	if err := startAll(g.servers); err != nil {
		g.t.Fatalf("testserver: Redis did not start again: %v", err)
	}
	for _, s := range g.servers {
		if s != primary {
			s.WaitSynced(primary)
		}
	}
}

// Restart kills all nodes and starts them again, with the data that they have kept. It returns when they accept writes.
func (c *RedisCluster) Restart() {
	c.t.Helper()
	killAll(c.nodes)
	if err := startAll(c.nodes); err != nil {
		c.t.Fatalf("testserver: the cluster did not start again: %v", err)
	}
	await(c.t, "all nodes of the cluster are connected", c.connected)
	c.PrimaryOf("any") // which waits until all are content
}
