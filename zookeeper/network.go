package zookeeper

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
)

// network is how one session reaches the servers: the library's dialer and host provider. Names are
// resolved at each attempt (samuel/go-zookeeper#44), and the backoff suits the session's time-out,
// where the library waits a second before it returns to the only server.
type network struct {
	driver *backend
	ctx    context.Context // ends with the session
	ttl    time.Duration
	conn   *zk.Conn
	events <-chan zk.Event
	making sync.RWMutex // of containers

	mu       sync.Mutex
	next     int
	attempts int // since there was a session
	timeouts int // of those: there was no reply in time
	current  *link
	failure  error // of the latest attempt
}

var _ zk.HostProvider = (*network)(nil)

func newNetwork(ctx context.Context, d *backend, ttl time.Duration) *network {
	return &network{driver: d, ctx: ctx, ttl: ttl, next: rand.IntN(1 << 16)}
}

// Init is called by the library.
func (n *network) Init([]string) error { return nil }

// Len is called by the library.
func (n *network) Len() int { return len(n.driver.servers) }

// Next is called by the library. Only if again is true does the library check whether it is to
// quit.
func (n *network) Next() (server string, again bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next = (n.next + 1) % n.Len()
	return n.driver.servers[n.next], n.ctx.Err() != nil
}

// Connected is called by the library when there is a session.
func (n *network) Connected() {}

// dial is called by the library.
func (n *network) dial(_, address string, _ time.Duration) (net.Conn, error) {
	n.mu.Lock()
	n.attempts++
	if n.current != nil && n.current.silent {
		n.timeouts++
	}
	attempts, last, timeout := n.attempts, n.current, n.connectTimeout()
	n.current = nil
	n.mu.Unlock()
	if last != nil {
		_ = last.Close() // the library leaves it open when the session has expired (no issue is known)
	}
	if attempts > n.Len() {
		backoff := min(max(n.ttl/50, 10*time.Millisecond), 500*time.Millisecond)
		_ = clock.Sleep(n.ctx, backoff/2+rand.N(backoff))
	}
	ctx, cancel := context.WithTimeout(n.ctx, min(n.driver.dialTimeout, n.ttl/4, timeout))
	defer cancel()
	began := clock.Now()
	conn, err := n.connect(ctx, address)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && n.ctx.Err() != nil {
		_ = conn.Close()
		err = n.ctx.Err()
	}
	if err != nil {
		if timedOut(err) {
			n.timeouts++
		}
		n.failure = fmt.Errorf("%w: %w", errUnreachable, err)
		return nil, err
	}
	n.failure = fmt.Errorf("%w: %w", errUnreachable, noanswer.Error(address+" accepts connections and does not answer"))
	n.current = &link{Conn: conn, began: began, replyTimeout: timeout}
	return n.current, nil
}

func (n *network) connect(ctx context.Context, address string) (net.Conn, error) {
	conn, err := n.driver.dial(ctx, "tcp", address)
	if err != nil || n.driver.tls == nil {
		return conn, err
	}
	config := n.driver.tls(ctx)
	config.ServerName = cmp.Or(config.ServerName, adapter.Host(address))
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return abrupt{secure}, nil
}

// abrupt is a TLS connection that is closed without a close_notify, for which there may be no room in
// the buffers of a connection to a stopped server. ZooKeeper's protocol has an end of its own.
type abrupt struct{ *tls.Conn }

func (a abrupt) Close() error { return a.NetConn().Close() }

// connectTimeout is how long a server may take to create or resume a session. It is short until each
// server has timed out twice, so that holds last though several are silent; after that, servers that
// are merely slow get their time.
func (n *network) connectTimeout() time.Duration {
	if others := n.Len() - 1; n.timeouts < 2*others {
		return pace(n.ttl) / 8
	}
	return pace(n.ttl) / 3
}

// established returns the connection on which the session of conn was just created or resumed.
func (n *network) established(conn *zk.Conn) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.current.established, n.current.replyTimeout = true, pace(n.ttl)/3
	if hasWatches(conn) {
		n.current.holdReads()
	}
	n.attempts, n.timeouts, n.failure = 0, 0, nil
	return n.current
}

// lastError returns what is wrong with the connection, or nil.
func (n *network) lastError() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if errors.Is(n.failure, context.Canceled) {
		return errUnreachable
	}
	return n.failure
}

// closeTimeout is how long it may take to close a session.
const closeTimeout = 700 * time.Millisecond

// close ends the session at the server if that can be reached, and the connection in any case.
func (n *network) close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		n.making.Lock()
		n.conn.Close()
		n.making.Unlock()
		for range n.events { // until the library's goroutines have ended
		}
	}()
	t := time.AfterFunc(closeTimeout, n.cut)
	defer t.Stop()
	<-closed
}

// createContainer makes a container before the connection closes, or not at all: when it closes,
// the library reads the answer while another goroutine of it may be writing that. No issue is
// known.
func (n *network) createContainer(node string) (string, error) {
	n.making.RLock()
	defer n.making.RUnlock()
	return n.conn.CreateContainer(node, nil, zk.FlagContainer, n.driver.acl)
}

// cut ends the connection under the library.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != nil {
		_ = n.current.Close()
	}
}

// Before version 3.6, a server that starts again from a snapshot that was written while
// transactions came in may set a node's pzxid back (ZOOKEEPER-3249, ZOOKEEPER-3145), of which we
// make tokens.
const oldestMajor, oldestMinor = 3, 6

// checkVersion returns driver.ErrUnsupported if the server is too old. It asks by the word srvr, on
// a connection of its own: the one word that servers answer by default. Some never answer. After
// one that is not too old no server is asked again.
func (n *network) checkVersion(ctx context.Context, address string) error {
	if n.driver.recent.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(pace(n.ttl)/16, 500*time.Millisecond))
	defer cancel()
	conn, err := n.connect(ctx, address)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	forget := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer forget()
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return nil
	}
	const firstLine = 256
	line, err := bufio.NewReader(io.LimitReader(conn, firstLine)).ReadString('\n')
	if err != nil {
		return nil // half a line may have another version
	}
	var major, minor int
	if _, err := fmt.Sscanf(line, "Zookeeper version: %d.%d", &major, &minor); err != nil {
		return nil // it does not tell
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		version, _, _ := strings.Cut(strings.TrimPrefix(line, "Zookeeper version: "), "-")
		return fmt.Errorf("%w: %s is ZooKeeper %s, on which tokens may fall when it starts again: use version %d.%d or later",
			driver.ErrUnsupported, address, version, oldestMajor, oldestMinor)
	}
	n.driver.recent.Store(true)
	return nil
}
