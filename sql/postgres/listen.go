package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/internal/clock"
)

// How hand-overs by other Drivers arrive.
//
//  1. connect dials one connection beside the pool, with the pool's settings.
//  2. probe compares the process that serves it with the one announced when it was made: they differ
//     behind a pooler, which would LISTEN on a connection that it gives to others. Then LISTEN.
//  3. check has a connection of the pool notify this one. Only after that is the listener subscribed,
//     for the two may lead to two servers: a standby, or a primary that was replaced.
//  4. hear wakes the claim that a notification names. After 5 s of silence, check again.
//
// Notifications from before the subscription, and those after the connection broke, are lost. So each
// change of state makes a beat due, which finds what they were about: waiting.go. Where there is no
// subscription, beats come more often, and a reconnect is tried with a backoff; after a minute where a
// pooler stands between.

const (
	silence     = 5 * time.Second
	probeTime   = 2 * time.Second
	poolerPause = time.Minute // after which to try again where a pooler stands between
)

// errPooler means that LISTEN would be in vain: a pooler in transaction mode takes it, for
// whichever connection the server has then.
var errPooler = errors.New("a pooler stands between, through which no notification arrives")

// listener receives the notifications by which other Drivers hand locks over. While there are
// waiters, it has one connection of its own.
type listener struct {
	driver  *backend
	channel string

	turn  sync.Mutex  // held by run: one ends before the next begins
	heard atomic.Bool // notifications sent now will arrive
}

func channelOf(client []byte) string { return "locker_" + hex.EncodeToString(client) }

// run listens, and reconnects with a backoff, until ctx ends.
func (l *listener) run(ctx context.Context) {
	l.turn.Lock()
	defer l.turn.Unlock()
	const shortest = 50 * time.Millisecond
	for pause := shortest; ; pause = min(2*pause, 5*time.Second) {
		err := l.listen(ctx)
		if l.set(false) {
			pause = shortest
		}
		wait := pause/2 + mrand.N(pause)
		if errors.Is(err, errPooler) {
			wait = poolerPause
		}
		if clock.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// set records whether the listener is subscribed, and returns the earlier state. A change makes a
// beat due: notifications sent while it was not subscribed are lost.
func (l *listener) set(heard bool) (before bool) {
	before = l.heard.Swap(heard)
	if before || heard {
		signal(l.driver.waiting.look)
	}
	return before
}

// listen connects, and receives notifications until the connection or ctx ends.
func (l *listener) listen(ctx context.Context) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	l.set(true)
	for {
		_, err := l.hear(ctx, conn, silence)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = l.check(ctx, conn)
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
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid); err != nil {
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
	_, err := l.driver.query(asking, l.driver.shared, notify, []byte(l.channel), []byte{})
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
