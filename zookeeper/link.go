package zookeeper

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/internal/outage"
)

// link is a connection to one server. It tells what the library does not: when its making began, and
// what the server has granted. And it is given up sooner: by default a server that has stopped is left after two
// thirds of the session's time-out, or after several time-outs while a session is being taken up.
type link struct {
	net.Conn
	address  string // as it was given
	began    time.Time
	greeting time.Duration // how long the answer to the connect request may take
	patience time.Duration // and those after it
	head     []byte        // of what the server sends
	silent   bool          // it did not answer in time

	// watchesSet is closed when the library has sent its watches again; nil on a session's first connection.
	watchesSet chan struct{}
	watchPause func() time.Duration
	once       sync.Once
	waited     bool // for that
}

// headBytes is the beginning of the answer to a connect request: its length, the version of the protocol, the time-out in
// milliseconds, and the session's number.
const headBytes = 4 + 4 + 4 + 8

func (l *link) Read(b []byte) (int, error) {
	if l.watchesSet != nil && len(l.head) == headBytes && !l.waited {
		// The library notes an answer's zxid in one goroutine while it reads it, for its watches, in another, without a lock.
		l.waited = true
		select {
		case <-l.watchesSet:
		case <-time.After(l.watchPause()):
		}
	}
	n, err := l.Conn.Read(b)
	if missing := headBytes - len(l.head); missing > 0 {
		l.head = append(l.head, b[:min(n, missing)]...)
		l.silent = l.silent || timedOut(err)
	}
	return n, err
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// opSetWatches is the operation of a request that sets watches again. It stands behind the length and the number of the request.
const opSetWatches = 101

func (l *link) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	if l.watchesSet != nil && len(b) >= 12 && binary.BigEndian.Uint32(b[8:]) == opSetWatches {
		l.once.Do(func() { close(l.watchesSet) })
	}
	if err != nil {
		// The library would say so to the request, and say so again when it has heard from Read. If the request was made while it
		// closes, that is once too often: nobody listens, and it stands still.
		_ = l.Close()
		return len(b), nil //nolint:nilerr // as said
	}
	return n, nil
}

// granted is what the server has answered to the connect request.
func (l *link) granted() (timeout time.Duration, session int64) {
	if len(l.head) < headBytes {
		return 0, 0
	}
	ms := int32(binary.BigEndian.Uint32(l.head[8:]))
	return time.Duration(ms) * time.Millisecond, int64(binary.BigEndian.Uint64(l.head[12:]))
}

func (l *link) SetReadDeadline(t time.Time) error  { return l.Conn.SetReadDeadline(l.capped(t)) }
func (l *link) SetWriteDeadline(t time.Time) error { return l.Conn.SetWriteDeadline(l.capped(t)) }

func (l *link) capped(t time.Time) time.Time {
	patience := l.patience
	if len(l.head) < headBytes {
		patience = l.greeting
	}
	if latest := time.Now().Add(patience); t.After(latest) {
		return latest
	}
	return t
}

// network is how one session of ours reaches the servers: it is the library's dialer and its host provider.
// Names are resolved at each attempt, and the pauses suit the session's time-out, where the library waits a second before it
// comes back to the only server.
type network struct {
	ctx     context.Context // ends with the session
	servers []string
	timeout time.Duration // of making a connection
	ttl     time.Duration
	watches func() bool // whether there are any
	tls     *tls.Config // nil: none

	mu           sync.Mutex
	next         int
	attempts     int // since there was a session
	silences     int // of those: there was no answer in time
	current      *link
	attachedOnce bool
	trouble      error // of the latest attempt
}

var _ zk.HostProvider = (*network)(nil)

func newNetwork(ctx context.Context, servers []string, timeout, ttl time.Duration, watches func() bool) *network {
	return &network{
		ctx: ctx, servers: servers, timeout: min(timeout, ttl/4), ttl: ttl, watches: watches, next: rand.IntN(len(servers)),
	}
}

// watchPause bounds how long answers on a connection that was made again wait for the library's watches to be sent.
func (n *network) watchPause() time.Duration {
	if n.watches() {
		return pace(n.ttl) / 3
	}
	return min(pace(n.ttl)/20, 50*time.Millisecond) // of one that was just set the session may not know yet
}

// Init is called by the library.
func (n *network) Init([]string) error { return nil }

// Len is called by the library.
func (n *network) Len() int { return len(n.servers) }

// Next is called by the library. Only if it is told to start anew does it look whether it is to quit.
func (n *network) Next() (server string, again bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next = (n.next + 1) % len(n.servers)
	return n.servers[n.next], n.ctx.Err() != nil
}

// Connected is called by the library when there is a session.
func (n *network) Connected() {}

// dial is called by the library.
func (n *network) dial(_, address string, _ time.Duration) (net.Conn, error) {
	n.mu.Lock()
	n.attempts++
	if n.current != nil && n.current.silent {
		n.silences++
	}
	attempts, last, greeting := n.attempts, n.current, n.greeting()
	n.current = nil
	n.mu.Unlock()
	if last != nil {
		_ = last.Close() // the library leaves it open when the session has expired
	}
	if attempts > len(n.servers) {
		pause := min(max(n.ttl/50, 10*time.Millisecond), 500*time.Millisecond)
		_ = outage.Sleep(n.ctx, pause/2+rand.N(pause))
	}
	ctx, cancel := context.WithTimeout(n.ctx, min(n.timeout, greeting))
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
			n.silences++
		}
		n.trouble = fmt.Errorf("%w: %w", errAway, err)
		return nil, err
	}
	n.trouble = fmt.Errorf("%w: %w", errAway, noanswer.Error(address+" accepts connections and does not answer"))
	n.current = &link{Conn: conn, address: address, began: began, greeting: greeting, patience: pace(n.ttl) / 3}
	if n.attachedOnce {
		n.current.watchesSet, n.current.watchPause = make(chan struct{}), n.watchPause
	}
	return n.current, nil
}

func (n *network) connect(ctx context.Context, address string) (net.Conn, error) {
	if n.tls == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	conn, err := (&tls.Dialer{Config: n.tls}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return abrupt{conn.(*tls.Conn)}, nil
}

// abrupt is a TLS connection that is closed without a farewell, for which a server that has stopped would
// have to make room. ZooKeeper has its own.
type abrupt struct{ *tls.Conn }

func (a abrupt) Close() error { return a.NetConn().Close() }

// greeting is how long a server may take for the answer by which there is a session. It is short while others can
// be asked, so that holds last though several are silent; but in the end servers that are merely slow are waited for.
func (n *network) greeting() time.Duration {
	if others := len(n.servers) - 1; n.silences < 2*others {
		return pace(n.ttl) / 8
	}
	return pace(n.ttl) / 3
}

// attached returns the connection on which the session was just made, or taken up.
func (n *network) attached() *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.attempts, n.silences, n.trouble, n.attachedOnce = 0, 0, nil, true
	return n.current
}

// why is what is wrong, if something is.
func (n *network) why() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if errors.Is(n.trouble, context.Canceled) {
		return errAway
	}
	return n.trouble
}

// cut ends the connection under the library.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != nil {
		_ = n.current.Close()
	}
}
