package testserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// RedisServer is a redis-server process that keeps its data in memory only, but with RedisPersistent.
type RedisServer struct {
	*process
	*Certificates // with RedisTLS, and else nil
}

// RedisOption changes how Redis starts its server, or how Sentinel and Cluster start each of theirs.
type RedisOption func(*redisOptions)

type redisOptions struct {
	config     []string
	clock      bool
	persistent bool
	tls        bool
	certs      *Certificates // with tls: those of other servers, or nil for new ones
	primary    *RedisServer

	// Of groups only.
	replicas       int
	sentinelConfig []string
}

// RedisConfig writes lines into the server's configuration file, such as "maxmemory 2mb", or
// "user alice on >pw …".
func RedisConfig(lines ...string) RedisOption {
	return func(o *redisOptions) { o.config = append(o.config, lines...) }
}

// RedisTLS makes the server accept only TLS, with certificates made for this test, and ask clients for
// theirs.
func RedisTLS() RedisOption {
	return func(o *redisOptions) { o.tls = true }
}

// RedisReplicaOf makes the server a replica of primary, with the same certificates if that speaks
// TLS. Redis returns once it has synchronised. It is no option for Sentinel and Cluster.
func RedisReplicaOf(primary *RedisServer) RedisOption {
	return func(o *redisOptions) { o.primary = primary }
}

// Redis starts a server and returns when it answers. It is killed when the test ends.
func Redis(t testing.TB, opts ...RedisOption) *RedisServer {
	t.Helper()
	return startRedis(t, newRedisOptions(opts))
}

func newRedisOptions(opts []RedisOption) redisOptions {
	o := redisOptions{replicas: 1}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Valkey starts a server of Redis's open successor, for tests of what the two have in common. Where
// there is none the test is skipped, in CI too.
func Valkey(t testing.TB, opts ...RedisOption) *RedisServer {
	t.Helper()
	path, err := find("valkey-server")
	if err != nil {
		t.Skipf("testserver: valkey-server is not here: %v; make setup fetches it on Debian", err)
	}
	s := redisAt(t, "valkey-server", path)
	s.launch(newRedisOptions(opts))
	return s
}

func startRedis(t testing.TB, o redisOptions) *RedisServer {
	t.Helper()
	s := newRedis(t)
	s.launch(o)
	return s
}

// newRedis prepares a process of redis-server.
func newRedis(t testing.TB) *RedisServer {
	t.Helper()
	return redisAt(t, redisServer.program, lookup(t, redisServer))
}

func redisAt(t testing.TB, name, path string) *RedisServer {
	t.Helper()
	s := &RedisServer{process: newProcess(t, name, path, t.TempDir())}
	s.layOut = func() error { return os.MkdirAll(s.dataDir(), 0o700) }
	s.isReady = func() error { _, err := s.do("PING"); return err }
	return s
}

// launch starts the server on a port that it finds itself.
func (s *RedisServer) launch(o redisOptions) {
	s.t.Helper()
	s.prepare(o)
	file := s.args[0]
	s.begin(func(port int) []string { return []string{file, s.portFlag(), strconv.Itoa(port)} })
	if o.primary != nil {
		s.WaitSynced(o.primary)
	}
}

// prepare writes the server's configuration, but for its port, with more lines. What users of the
// package add comes after these, and wins.
func (s *RedisServer) prepare(o redisOptions, more ...string) {
	s.t.Helper()
	if o.persistent {
		s.moveToMemory()
		more = append(more, "appendonly yes", "appendfsync always")
	}
	if o.clock {
		s.useClock()
	}
	s.needChannelRights(o.config)
	if o.primary != nil {
		o.tls, o.certs = o.tls || o.primary.Certificates != nil, o.primary.Certificates
		// Not an argument, which would come again after a Restart whatever happened before.
		more = append(more, "replicaof 127.0.0.1 "+strconv.Itoa(o.primary.port))
	}
	if o.tls {
		s.useTLS(o.certs)
	}
	s.args = []string{s.writeFile("redis.conf", slices.Concat([]string{
		"user " + operator + " on >" + operator + " ~* " + s.allChannels() + "+@all",
		"masteruser " + operator, "masterauth " + operator,
		"bind 127.0.0.1", "dir " + s.dataDir(), `save ""`,
		// Without a disk, a replica's first synchronisation waits five seconds for others to join
		// in, and after it the first write often takes another one to get there.
		"repl-diskless-sync no",
	}, s.tlsConfig(), more, o.config))}
}

// tlsConfig returns the lines by which a server speaks TLS, if it does.
func (s *RedisServer) tlsConfig() []string {
	if s.Certificates == nil {
		return nil
	}
	return []string{
		"port 0", "tls-ca-cert-file " + s.CAFile, "tls-cert-file " + s.CertFile, "tls-key-file " + s.KeyFile,
		"tls-replication yes", "tls-cluster yes",
	}
}

// useTLS takes certs, or makes new ones if that is nil.
func (s *RedisServer) useTLS(certs *Certificates) {
	s.t.Helper()
	if certs == nil {
		certs = NewCertificates(s.t)
	}
	s.Certificates = certs
}

func (s *RedisServer) writeFile(name string, lines []string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	s.check(os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return file
}

func (s *RedisServer) portFlag() string {
	if s.Certificates != nil {
		return "--tls-port"
	}
	return "--port"
}

func killAll(servers []*RedisServer) {
	for _, s := range servers {
		s.kill()
	}
}

// URL returns "redis://127.0.0.1:port", or "rediss://…" with RedisTLS.
func (s *RedisServer) URL() string {
	if s.Certificates != nil {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// RedisPersistent makes the server write all data to a file before it answers. They outlive a Kill, until Wipe. The file is in
// memory, where the system has that: a disk that is busy would hold up every answer.
func RedisPersistent() RedisOption {
	return func(o *redisOptions) { o.persistent = true }
}

// moveToMemory comes before the server has any files.
func (s *RedisServer) moveToMemory() {
	s.t.Helper()
	s.dir = MemoryDir(s.t)
	s.t.Cleanup(s.kill) // before the directory is removed
}

// Do sends a command, as a user who may do everything, and returns its reply: a string, an int64, nil, or an
// []any of these.
func (s *RedisServer) Do(args ...string) any {
	s.t.Helper()
	return s.must(args...)
}

// WaitSynced returns when the server, as a replica of primary, has received all that primary had
// written when it was called.
func (s *RedisServer) WaitSynced(primary *RedisServer) {
	s.t.Helper()
	var wanted int
	var history string
	await(s.t, fmt.Sprintf("%s is a replica of %s and in step with it", s.Addr(), primary.Addr()), func() error {
		if history == "" {
			theirs, err := primary.replication()
			if err != nil {
				return err
			}
			wanted, history = offset(theirs), theirs["master_replid"]
		}
		ours, err := s.replication()
		switch {
		case err != nil:
			return err
		case ours["master_port"] != strconv.Itoa(primary.port), ours["master_link_status"] != "up":
			return fmt.Errorf("role %s, of port %q, link %q",
				ours["role"], ours["master_port"], ours["master_link_status"])
		case ours["master_replid"] != history:
			// Of another history than at the start: has primary begun a new one since?
			history = ""
			return errors.New("it has other data")
		case offset(ours) < wanted:
			return fmt.Errorf("it is at offset %d, not yet at %d", offset(ours), wanted)
		}
		return nil
	})
}

// Detach cuts a replica off from its primary's data for good, or until Reattach: nothing that is
// written after Detach has returned gets here. The server still is a replica and lets itself be
// promoted. Unlike with Stop no data waits in the connection to be read later.
func (s *RedisServer) Detach() {
	s.t.Helper()
	s.must("CONFIG", "SET", "masterauth", "wrong")
	s.must("CLIENT", "KILL", "TYPE", "master")
}

// Reattach undoes Detach. The server tries it within a second: see WaitSynced.
func (s *RedisServer) Reattach() {
	s.t.Helper()
	s.must("CONFIG", "SET", "masterauth", operator)
}

func (s *RedisServer) replication() (map[string]string, error) { return s.Info("INFO", "replication") }

// Info returns the fields of the reply to an INFO, or to CLUSTER INFO.
func (s *RedisServer) Info(command ...string) (map[string]string, error) {
	text, err := s.doText(command...)
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// Calls returns how often the server has run each command since CONFIG RESETSTAT, also in scripts.
func (s *RedisServer) Calls() map[string]int {
	s.t.Helper()
	stats, err := s.Info("INFO", "commandstats")
	s.check(err)
	calls := map[string]int{}
	for name, of := range stats {
		var n int
		_, err := fmt.Sscanf(of, "calls=%d", &n)
		s.check(err)
		calls[strings.TrimPrefix(name, "cmdstat_")] = n
	}
	return calls
}

// offset is how much of its history a server has, by its replication.
func offset(replication map[string]string) int {
	offset, err := strconv.Atoi(replication["master_repl_offset"])
	if err != nil {
		return -1
	}
	return offset
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
	g.group.Restart()
	for _, s := range g.servers {
		if s != primary {
			s.WaitSynced(primary)
		}
	}
}

// Restart kills all nodes and starts them again, with the data that they have kept. It returns when they accept writes.
func (c *RedisCluster) Restart() {
	c.t.Helper()
	c.group.Restart()
	await(c.t, "all nodes of the cluster are connected", c.connected)
	c.PrimaryOf("any") // which waits until all are content
}

// since reports whether the server is of a version or a later one.
func (s *RedisServer) since(major, minor int) bool {
	s.t.Helper()
	version, err := versionAt(s.path)
	var has [2]int
	if err == nil {
		_, err = fmt.Sscanf(version, "%d.%d", &has[0], &has[1])
	}
	if err != nil {
		s.t.Fatalf("testserver: which version: %v", err)
	}
	return slices.Compare(has[:], []int{major, minor}) >= 0
}

// HasShardChannels reports whether channels can belong to a slot of a Cluster, as they can from Redis 7 on.
func (s *RedisServer) HasShardChannels() bool { return s.since(7, 0) }

// allChannels is the right on every channel as users of this server are given it.
func (s *RedisServer) allChannels() string {
	s.t.Helper()
	if s.since(6, 2) { // which came with rights on channels, and with Sentinel's own users
		return "&* "
	}
	return ""
}

// needChannelRights skips tests of what this server cannot refuse.
func (s *RedisServer) needChannelRights(config []string) {
	s.t.Helper()
	if s.since(6, 2) {
		return
	}
	for _, line := range config {
		if strings.HasPrefix(line, "user ") && (strings.Contains(line, " &") || strings.Contains(line, " resetchannels")) {
			s.t.Skipf("testserver: users have no rights on channels before Redis 6.2")
		}
	}
}
