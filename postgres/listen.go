package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	mrand "math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	driverID    = 8 // bytes that a waiter's owner begins with: they name the channel on which it is told
	heartbeat   = 10 * time.Second
	probeTime   = 2 * time.Second
	poolerPause = time.Minute // after which to try again where a pooler stands between
)

// errPooler means that LISTEN would be in vain: a pooler in transaction mode takes it, for whichever connection the server has then.
var errPooler = errors.New("a pooler stands between, through which no notification arrives")

// listener wakes a Driver's waiters. It has one connection of its own, made when the first of them waits, and kept.
type listener struct {
	driver  *Driver
	name    []byte // of the channel, and of its waiters
	channel string

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	waiters map[string]func() // by owner: what wakes it
	started bool
	heard   bool // what is sent now arrives
	pooled  bool // it does not: a pooler stands between
}

func newListener(d *Driver) *listener {
	l := &listener{driver: d, name: make([]byte, driverID), waiters: map[string]func(){}}
	_, _ = rand.Read(l.name) // never fails
	l.channel = "locker_" + hex.EncodeToString(l.name)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// id is what owners begin with: eight zeros if they cannot be told anything.
func (l *listener) id() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pooled {
		return make([]byte, driverID)
	}
	return l.name
}

func (l *listener) hears() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard
}

// enter has wake called when owner is told through the channel.
func (l *listener) enter(owner []byte, wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters[string(owner)] = wake
}

func (l *listener) leave(owner []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiters, string(owner))
}

// need has the listener listen, from the first call on.
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

// run listens until the Driver is closed.
func (l *listener) run() {
	const shortest = 50 * time.Millisecond
	for pause := shortest; l.ctx.Err() == nil; {
		err := l.listen()
		if l.set(false, errors.Is(err, errPooler)) {
			pause = shortest
		}
		wait := pause/2 + mrand.N(pause)
		if errors.Is(err, errPooler) {
			wait = poolerPause
		}
		pause = min(2*pause, 5*time.Second)
		select {
		case <-time.After(wait):
		case <-l.ctx.Done():
		}
	}
}

// set notes whether the listener hears, has all look who wait, since what was sent before may be lost, and reports whether it did hear.
func (l *listener) set(heard, pooled bool) (before bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.heard
	l.heard, l.pooled = heard, pooled
	if before || heard {
		for _, wake := range l.waiters {
			wake()
		}
	}
	return before
}

// listen makes a connection, and listens on it until it ends.
func (l *listener) listen() error {
	conn, err := l.connect(l.ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	l.set(true, false)
	for {
		payload, err := receive(l.ctx, conn, heartbeat)
		if errors.Is(err, context.DeadlineExceeded) && l.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(l.ctx, heartbeat)
			err = checkPrimary(ctx, conn)
			cancel()
		}
		if err != nil {
			return err
		}
		l.wake(payload)
	}
}

// checkPrimary returns an error if the server does not answer, or is a standby by now: notifications are those of the primary.
func checkPrimary(ctx context.Context, conn *pgx.Conn) error {
	var standby bool
	err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()", pgx.QueryExecModeSimpleProtocol).Scan(&standby)
	if err == nil && standby {
		err = errors.New("the server is a standby")
	}
	return err
}

func (l *listener) wake(payload string) {
	owner, _ := hex.DecodeString(payload)
	l.mu.Lock()
	defer l.mu.Unlock()
	if wake := l.waiters[string(owner)]; wake != nil {
		wake()
	}
}

// connect returns a connection that listens, and has heard something that another has sent.
func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	config := l.driver.pool.Config()
	own := config.ConnConfig.Copy()
	dialling, cancel := context.WithTimeout(ctx, heartbeat)
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

// probe listens, and has another connection notify. It leaves poolers alone, which tell clients another process than the server's.
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
	if err := l.driver.exec(ctx, "SELECT pg_notify($1, '')", l.channel); err != nil {
		return err
	}
	_, err := receive(ctx, conn, probeTime)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return errPooler
	}
	return err
}

// receive returns the payload of the next notification.
func receive(ctx context.Context, conn *pgx.Conn, limit time.Duration) (payload string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return "", err
	}
	return n.Payload, nil
}

// closeConn ends a connection, whether its server answers or not.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = conn.Close(ctx)
}
