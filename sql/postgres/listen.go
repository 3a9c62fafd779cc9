package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	mrand "math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	silence     = 5 * time.Second
	probeTime   = 2 * time.Second
	poolerPause = time.Minute // after which to try again where a pooler stands between
)

// errPooler means that LISTEN would be in vain: a pooler in transaction mode takes it, for
// whichever connection the server has then.
var errPooler = errors.New("a pooler stands between, through which no notification arrives")

// errUnused ends a connection on which nobody waits for anything.
var errUnused = errors.New("nobody waits")

// listener receives the notifications by which other Drivers hand locks over. While there are
// waiters, it has one connection of its own.
type listener struct {
	driver  *backend
	channel string

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	started bool
	heard   bool // notifications sent now will arrive
}

func newListener(d *backend) *listener {
	l := &listener{driver: d, channel: channelOf(d.waiting.id)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func channelOf(client []byte) string { return "locker_" + hex.EncodeToString(client) }

func (l *listener) hears() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard
}

// need starts the listener, unless it runs.
func (l *listener) need() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started || l.ctx.Err() != nil {
		return
	}
	l.started = true
	l.done.Go(l.run)
}

func (l *listener) close() {
	l.mu.Lock()
	l.cancel()
	l.mu.Unlock()
	l.done.Wait()
}

// run reconnects with a backoff until there are no waiters, or the Driver is closed.
func (l *listener) run() {
	const shortest = 50 * time.Millisecond
	for pause := shortest; ; {
		err := l.listen()
		if l.set(false) {
			pause = shortest
		}
		wait := pause/2 + mrand.N(pause)
		if errors.Is(err, errPooler) {
			wait = poolerPause
		}
		pause = min(2*pause, 5*time.Second)
		for over := time.Now().Add(wait); time.Now().Before(over) && !l.ends(); {
			select {
			case <-time.After(min(wait, time.Second)):
			case <-l.ctx.Done():
			}
		}
		if l.stops() {
			return
		}
	}
}

func (l *listener) ends() bool { return l.ctx.Err() != nil || l.driver.waiting.unused() }

// stops reports whether the listener is not needed any more. The next need starts it again.
func (l *listener) stops() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = !l.ends()
	return !l.started
}

// set records whether notifications arrive, and returns the earlier state. If either is true all
// waiters ask, because earlier notifications may be lost.
func (l *listener) set(heard bool) (before bool) {
	l.mu.Lock()
	before = l.heard
	l.heard = heard
	l.mu.Unlock()
	if before || heard {
		l.driver.waiting.wakeOthers(nil)
	}
	return before
}

// listen connects, and receives notifications until the connection ends.
func (l *listener) listen() error {
	conn, err := l.connect(l.ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	l.set(true)
	for {
		_, err := l.hear(l.ctx, conn, silence)
		if errors.Is(err, context.DeadlineExceeded) && l.ctx.Err() == nil {
			if l.driver.waiting.unused() {
				return errUnused
			}
			err = l.check(l.ctx, conn)
		}
		if err != nil {
			return err
		}
	}
}

// connect returns a connection that listens, and has received a notification from another.
func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	config := l.driver.pool.Config()
	own := config.ConnConfig.Copy()
	dialling, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(dialling, own); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(dialling, own)
	if err != nil {
		return nil, err
	}
	if err := l.probe(dialling, conn); err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// probe listens, and has another connection notify. It leaves poolers alone, which tell clients
// another process than the server's.
func (l *listener) probe(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return err
	}
	if pid != conn.PgConn().PID() {
		return errPooler
	}
	if _, err := conn.Exec(ctx, "LISTEN "+l.channel, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	err := l.check(ctx, conn)
	if errors.Is(err, errDeaf) {
		return errPooler
	}
	return err
}

var errDeaf = errors.New("what is sent to the server of the locks is not heard here")

// check has another connection notify this one: it may lead to a server that is the primary no
// more. What arrives meanwhile is for waiters.
func (l *listener) check(ctx context.Context, conn *pgx.Conn) error {
	asking, cancel := context.WithTimeout(ctx, probeTime)
	err := l.driver.exec(asking, notify.text, l.channel, "")
	cancel()
	if err != nil {
		return err
	}
	hearing, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for {
		payload, err := l.hear(hearing, conn, probeTime)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return errDeaf
		case err != nil || payload == "":
			return err
		}
	}
}

// hear waits for a notification, and wakes the waiter that it names, if any.
func (l *listener) hear(ctx context.Context, conn *pgx.Conn, limit time.Duration) (payload string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return "", err
	}
	if owner, err := hex.DecodeString(n.Payload); err == nil {
		if c := l.driver.waiting.get(string(owner)); c != nil {
			c.Wake()
		}
	}
	return n.Payload, nil
}

// closeConn ends a connection, whether its server answers or not.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = conn.Close(ctx)
}
