package testserver

import (
	"crypto/tls"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// RedisServer is a redis-server process that keeps its data in memory only, but with RedisPersistent.
type RedisServer struct {
	*process

	// With RedisTLS: PEM files of the authority that signed the server's certificate, and of a
	// client certificate that the server accepts. Else empty.
	CAFile, CertFile, KeyFile string

	certs     *certificates
	tlsConfig *tls.Config
}

// RedisOption changes how Redis starts its server, or how Sentinel and Cluster start each of theirs.
type RedisOption func(*redisOptions)

type redisOptions struct {
	args, config []string
	clock        bool
	persistent   bool
	tls          bool
	certs        *certificates // with tls: those of other servers, or nil for new ones
	primary      *RedisServer

	// Of groups only.
	replicas       int
	sentinelConfig []string
}

// RedisArgs appends command-line arguments, such as "--maxmemory", "2mb".
func RedisArgs(args ...string) RedisOption {
	return func(o *redisOptions) { o.args = append(o.args, args...) }
}

// RedisConfig writes lines into the server's configuration file. ACL users ("user alice on >pw …")
// can only be declared there.
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
	s := &RedisServer{process: newProcess(t, name, path)}
	s.isReady = s.answers
	return s
}

// launch starts the server on a port that it finds itself.
func (s *RedisServer) launch(o redisOptions) {
	s.t.Helper()
	s.prepare(o)
	fixed := s.args
	s.begin(func(port int) []string {
		return slices.Concat(fixed, []string{s.portFlag(), strconv.Itoa(port)}, o.args)
	})
	if o.primary != nil {
		s.WaitSynced(o.primary)
	}
}

// prepare writes the files that the server needs and sets the arguments that do not depend on its
// port. What users of the package add comes after these, and wins.
func (s *RedisServer) prepare(o redisOptions) {
	s.t.Helper()
	if o.persistent {
		s.moveToMemory()
	}
	s.needChannelRights(o.config)
	config := []string{
		"user " + operator + " on >" + operator + " ~* " + s.allChannels() + "+@all",
		"masteruser " + operator, "masterauth " + operator,
	}
	if o.primary != nil {
		o.tls, o.certs = o.tls || o.primary.certs != nil, o.primary.certs
		// Not an argument, which would come again after a Restart whatever happened before.
		config = append(config, "replicaof 127.0.0.1 "+strconv.Itoa(o.primary.port))
	}
	file := s.writeFile("redis.conf", append(config, o.config...))
	s.args = []string{
		file, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no",
		// Without a disk, a replica's first synchronisation waits five seconds for others to join
		// in, and after it the first write often takes another one to get there.
		"--repl-diskless-sync", "no",
	}
	if o.clock {
		s.useClock()
	}
	if o.tls {
		s.useTLS(o.certs)
		s.args = append(s.args, "--port", "0", "--tls-ca-cert-file", s.certs.ca,
			"--tls-cert-file", s.certs.serverCert, "--tls-key-file", s.certs.serverKey,
			"--tls-replication", "yes")
	}
}

// useTLS takes certs, or makes new ones if that is nil.
func (s *RedisServer) useTLS(certs *certificates) {
	s.t.Helper()
	if certs == nil {
		var err error
		if certs, err = writeCertificates(s.dir); err != nil {
			s.t.Fatalf("testserver: %v", err)
		}
	}
	s.certs, s.tlsConfig = certs, certs.clientConfig
	s.CAFile, s.CertFile, s.KeyFile = certs.ca, certs.clientCert, certs.clientKey
}

func (s *RedisServer) writeFile(name string, lines []string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		s.t.Fatalf("testserver: %v", err)
	}
	return file
}

func (s *RedisServer) portFlag() string {
	if s.tlsConfig != nil {
		return "--tls-port"
	}
	return "--port"
}

func killAll(servers []*RedisServer) {
	for _, s := range servers {
		s.kill()
	}
}

// Port returns the server's port on 127.0.0.1. It stays the same for all of the server's life.
func (s *RedisServer) Port() int { return s.port }

// URL returns "redis://127.0.0.1:port", or "rediss://…" with RedisTLS.
func (s *RedisServer) URL() string {
	if s.tlsConfig != nil {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// TLSConfig returns what a client needs to be accepted by a server with RedisTLS, else nil.
func (s *RedisServer) TLSConfig() *tls.Config { return s.tlsConfig.Clone() }

// answers returns nil when the server handles commands, be it by refusing them without a password.
func (s *RedisServer) answers() error {
	reply, err := s.ask("PING")
	if err != nil || reply == "PONG" ||
		strings.HasPrefix(reply, "-NOAUTH") || strings.HasPrefix(reply, "-NOPERM") {
		return err
	}
	return errors.New(reply) // LOADING, for one
}

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

// Redis has users from 6.0 on, whose rights on channels, and Sentinel's own users, came with 6.2. Before, everyone may use every channel.
var beforeChannelRights = regexp.MustCompile(`^Redis server v=6\.[01]\.`)

var redisVersions sync.Map // by path

// version returns the version that the server's program prints.
func (s *RedisServer) version() string {
	s.t.Helper()
	if known, ok := redisVersions.Load(s.path); ok {
		return known.(string)
	}
	out, err := exec.Command(s.path, "--version").Output()
	if err != nil {
		s.t.Fatalf("testserver: %s --version: %v", s.path, err)
	}
	redisVersions.Store(s.path, string(out))
	return string(out)
}

// HasShardChannels reports whether channels can belong to a slot of a Cluster, as they can from Redis 7 on.
func (s *RedisServer) HasShardChannels() bool {
	return !strings.HasPrefix(s.version(), "Redis server v=6.")
}

// allChannels is the right on every channel as users of this server are given it.
func (s *RedisServer) allChannels() string {
	s.t.Helper()
	if beforeChannelRights.MatchString(s.version()) {
		return ""
	}
	return "&* "
}

// needChannelRights skips tests of what this server cannot refuse.
func (s *RedisServer) needChannelRights(config []string) {
	s.t.Helper()
	if !beforeChannelRights.MatchString(s.version()) {
		return
	}
	for _, line := range config {
		if strings.HasPrefix(line, "user ") && (strings.Contains(line, " &") || strings.Contains(line, " resetchannels")) {
			s.t.Skipf("testserver: users have no rights on channels before Redis 6.2: %s", strings.TrimSpace(s.version()))
		}
	}
}
