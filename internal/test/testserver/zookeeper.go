package testserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ZooKeeperServer is a ZooKeeper process, on its own or a member of an ensemble. Its data outlives a
// Kill and is gone at the end of the test.
type ZooKeeperServer struct {
	*process

	id                             int // counts from 1
	port, quorumPort, electionPort int
	data                           string
}

// ZooKeeperOption changes how ZooKeeper and ZooKeeperEnsemble start their servers.
type ZooKeeperOption func(*zooKeeperOptions)

type zooKeeperOptions struct {
	config, jvm   []string
	partitionable bool
	clock         bool
}

// ZooKeeperConfig appends lines to the configuration file, such as "tickTime=50". What comes later wins.
func ZooKeeperConfig(lines ...string) ZooKeeperOption {
	return func(o *zooKeeperOptions) { o.config = append(o.config, lines...) }
}

// ZooKeeperJVM appends flags for Java, such as "-Dzookeeper.skipACL=yes". They contain no spaces, and
// what comes later wins.
func ZooKeeperJVM(flags ...string) ZooKeeperOption {
	return func(o *zooKeeperOptions) { o.jvm = append(o.jvm, flags...) }
}

// ZooKeeperPartitionable lets what the members of an ensemble send each other pass through a network
// that [ZooKeeperGroup.Isolate] can make fail.
func ZooKeeperPartitionable() ZooKeeperOption {
	return func(o *zooKeeperOptions) { o.partitionable = true }
}

// ZooKeeperReaping has the servers look for empty containers, and for nodes whose TTL is over, ten times a second.
func ZooKeeperReaping() ZooKeeperOption { return ZooKeeperJVM("-Dznode.container.checkIntervalMs=100") }

// The configuration of every server. A tick of 100 ms makes sessions of 200 ms possible, and elections
// after half a second; the longest session is long enough for tests that want one that never expires.
var zooKeeperDefaults = []string{
	"tickTime=100", "minSessionTimeout=200", "maxSessionTimeout=60000",
	"initLimit=100", "syncLimit=5",
	"clientPortAddress=127.0.0.1", "maxClientCnxns=0",
	"admin.enableServer=false", "4lw.commands.whitelist=*",
	"extendedTypesEnabled=true", // nodes with a TTL
	"forceSync=no",
	// While there is no majority, members repeat their votes at intervals that double up to a minute,
	// each waits five seconds for another that is stopped, and one that was elected waits initLimit
	// for followers, whom a proxy that accepts for a server that is not ready has sent away.
	"fastleader.maxNotificationInterval=400", "cnxTimeout=500", "leader.maxTimeToWaitForEpoch=1000",
}

// A process killed by SIGKILL would leave its UsePerfData in the system's directory for temporary files.
var zooKeeperJVM = []string{
	"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
	"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
}

// ZooKeeper starts a server and returns when it answers. It is killed when the test ends. The shortest
// session that it grants is 200 ms, and it looks for empty containers once a minute, as ZooKeeper does by default, or
// with ZooKeeperReaping.
func ZooKeeper(t testing.TB, opts ...ZooKeeperOption) *ZooKeeperServer {
	t.Helper()
	return ZooKeeperEnsemble(t, 1, opts...).servers[0]
}

func newZooKeeper(t testing.TB, id int, o zooKeeperOptions) *ZooKeeperServer {
	t.Helper()
	path := lookup(t, zooKeeperServer)
	data := MemoryDir(t) // before the process, which writes into it
	s := &ZooKeeperServer{process: newProcess(t, "zookeeper"+strconv.Itoa(id), path), id: id, data: data}
	s.args = []string{filepath.Join(s.dir, "zoo.cfg")}
	s.env = []string{"SERVER_JVMFLAGS=" + strings.Join(slices.Concat(zooKeeperJVM, o.jvm), " ")}
	if o.clock {
		s.useClock()
	}
	return s
}

// configure writes the configuration file, for which the caller says what members the server sees.
func (s *ZooKeeperServer) configure(members, more []string) error {
	lines := slices.Concat(zooKeeperDefaults, []string{
		"dataDir=" + s.dataDir(), "clientPort=" + strconv.Itoa(s.port),
	}, members, more)
	if err := s.identify(); err != nil {
		return err
	}
	return os.WriteFile(s.args[0], []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// identify writes into an empty data directory which member this is.
func (s *ZooKeeperServer) identify() error {
	if err := os.MkdirAll(s.dataDir(), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dataDir(), "myid"), []byte(strconv.Itoa(s.id)), 0o600)
}

// Wipe removes the data of a server that was killed.
func (s *ZooKeeperServer) Wipe() {
	s.t.Helper()
	s.wipe(s.dataDir())
	if err := s.identify(); err != nil {
		s.t.Fatalf("testserver: %s: %v", s.name, err)
	}
}

func (s *ZooKeeperServer) dataDir() string { return filepath.Join(s.data, "data") }

// Addr returns the "127.0.0.1:port" for clients. It stays the same for all of the server's life.
func (s *ZooKeeperServer) Addr() string { return loopback(s.port) }

// URL returns "zookeeper://127.0.0.1:port".
func (s *ZooKeeperServer) URL() string { return "zookeeper://" + s.Addr() }

// Restart kills the server if it runs and starts it again, on the same ports and with the data that it
// has. It returns when the server answers, which takes a majority of its ensemble: one that was lost as
// a whole restarts by [ZooKeeperGroup.Restart].
func (s *ZooKeeperServer) Restart() {
	s.t.Helper()
	s.kill()
	if err := s.serve(); err != nil {
		s.t.Fatalf("testserver: %s did not start again on port %d: %v", s.name, s.port, err)
	}
}

// serve starts the server and returns when it serves clients.
func (s *ZooKeeperServer) serve() error { return s.start(s.serving) }

// Role returns the role that the server reports: "standalone", "leader" or "follower", and "" while it
// serves no clients: it is down or stopped, or sees no majority.
func (s *ZooKeeperServer) Role() string {
	role, err := s.role()
	if err != nil {
		return ""
	}
	return role
}

func (s *ZooKeeperServer) role() (string, error) {
	answer, err := s.Ask("srvr")
	if err != nil {
		return "", err
	}
	_, role, found := strings.Cut(answer, "\nMode: ")
	if !found {
		return "", fmt.Errorf("%s: %s", s.name, strings.TrimSpace(answer))
	}
	role, _, _ = strings.Cut(role, "\n")
	return role, nil
}

// serving returns nil when the server handles requests.
func (s *ZooKeeperServer) serving() error {
	_, err := s.role()
	return err
}

// Ask sends one of ZooKeeper's four-letter words, such as "mntr", and returns the answer.
func (s *ZooKeeperServer) Ask(word string) (string, error) {
	const timeout = time.Second
	conn, err := net.DialTimeout("tcp", s.Addr(), timeout)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && len(answer) == 0 {
		err = errors.New(s.name + " closed the connection without an answer")
	}
	return string(answer), err
}
