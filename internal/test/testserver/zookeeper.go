package testserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
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

	id                       int // counts from 1
	quorumPort, electionPort int
}

// ZooKeeperOption changes how ZooKeeper and ZooKeeperEnsemble start their servers.
type ZooKeeperOption func(*zooKeeperOptions)

type zooKeeperOptions struct {
	config, jvm []string
	clock       bool
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
	s := &ZooKeeperServer{process: newProcess(t, "zookeeper"+strconv.Itoa(id), path, MemoryDir(t)), id: id}
	s.isReady, s.layOut = func() error { _, err := s.role(); return err }, s.identify
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
	return os.WriteFile(s.args[0], []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// identify writes into the data directory which member this is.
func (s *ZooKeeperServer) identify() error {
	if err := os.MkdirAll(s.dataDir(), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dataDir(), "myid"), []byte(strconv.Itoa(s.id)), 0o600)
}

// URL returns "zookeeper://127.0.0.1:port".
func (s *ZooKeeperServer) URL() string { return "zookeeper://" + s.Addr() }

// role returns "standalone", "leader" or "follower", or an error while the server serves no clients:
// it is down or stopped, or sees no majority.
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

// Ask sends one of ZooKeeper's four-letter words, such as "mntr", and returns the answer.
func (s *ZooKeeperServer) Ask(word string) (string, error) {
	conn, err := dial(s.port, time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && len(answer) == 0 {
		err = errors.New(s.name + " closed the connection without an answer")
	}
	return string(answer), err
}

// SetCreated restarts the server, which then believes that n children of parent have been made: the next that is sequential gets
// the number n. No client can make so many. The transaction that says so, the making of a child, and one that deletes the child are
// appended to the server's log.
func (s *ZooKeeperServer) SetCreated(parent string, n int32) {
	s.t.Helper()
	s.kill()
	s.check(s.setCreated(parent, n))
	s.Restart()
}

func (s *ZooKeeperServer) setCreated(parent string, n int32) error {
	path, err := s.lastLog()
	if err != nil {
		return err
	}
	log, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	end, last, err := readTransactions(log)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	child := parent + "/created"
	var made []byte
	made = appendJute(made, child)
	made = appendJute(made, "")                   // its data
	made = binary.BigEndian.AppendUint32(made, 1) // of its ACL's entries
	made = binary.BigEndian.AppendUint32(made, 31)
	made = appendJute(appendJute(made, "world"), "anyone")
	made = append(made, 0) // not ephemeral
	made = binary.BigEndian.AppendUint32(made, uint32(n))
	const create, remove = 1, 2
	more := appendTransaction(nil, last+1, create, made)
	more = appendTransaction(more, last+2, remove, appendJute(nil, child))
	if rest := log[end:]; len(rest) < len(more) {
		log = append(log, make([]byte, len(more)-len(rest))...)
	}
	copy(log[end:], more)
	return os.WriteFile(path, log, 0o600)
}

// lastLog is the path of the log that the server wrote last. Its name has the number of its first transaction.
func (s *ZooKeeperServer) lastLog() (string, error) {
	logs, err := filepath.Glob(filepath.Join(s.dataDir(), "version-2", "log.*"))
	if err != nil || len(logs) == 0 {
		return "", errors.Join(errors.New("it has written nothing yet"), err)
	}
	number := func(log string) uint64 {
		n, _ := strconv.ParseUint(strings.TrimPrefix(filepath.Ext(log), "."), 16, 64)
		return n
	}
	return slices.MaxFunc(logs, func(a, b string) int { return int(number(a)) - int(number(b)) }), nil
}

// A log is a header of 16 bytes, transactions, and zeros. A transaction is a checksum of eight bytes, its length in four, a
// header, what it does, and a mark (FileTxnLog).
const (
	logHeader   = 16
	beforeBytes = 8 + 4
	endMark     = 'B'
)

// readTransactions returns where a log's transactions end, and the number of the last.
func readTransactions(log []byte) (end int, last uint64, err error) {
	if !bytes.HasPrefix(log, []byte("ZKLG")) {
		return 0, 0, errors.New("this is no log of transactions")
	}
	const zxid = 8 + 4 // behind the client's number and that of its request
	for end = logHeader; end+beforeBytes <= len(log); {
		length := int(binary.BigEndian.Uint32(log[end+8:]))
		if length == 0 {
			break
		}
		next := end + beforeBytes + length + 1
		if next > len(log) || log[next-1] != endMark {
			break // it was being written
		}
		last = binary.BigEndian.Uint64(log[end+beforeBytes+zxid:])
		end = next
	}
	if last == 0 {
		return 0, 0, errors.New("it has no transactions")
	}
	return end, last, nil
}

func appendTransaction(log []byte, zxid uint64, kind uint32, what []byte) []byte {
	transaction := make([]byte, 8+4, 64+len(what)) // nobody's request
	transaction = binary.BigEndian.AppendUint64(transaction, zxid)
	transaction = binary.BigEndian.AppendUint64(transaction, uint64(time.Now().UnixMilli()))
	transaction = binary.BigEndian.AppendUint32(transaction, kind)
	transaction = append(transaction, what...)
	log = binary.BigEndian.AppendUint64(log, uint64(adler32.Checksum(transaction)))
	log = appendJute(log, string(transaction))
	return append(log, endMark)
}

// appendJute appends a string as ZooKeeper writes them.
func appendJute(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}
