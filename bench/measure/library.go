package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/sql/postgres" // postgres://
)

type (
	// library is one way to lock.
	library struct {
		name, module, settings string

		ttl time.Duration // of holds, or of the session that they share

		// open makes a client as a process of its own would have it, with its own connections.
		open func(addrs []string, sent *tally, ttl time.Duration) (*client, error)
	}

	// client is one process's.
	client struct {
		waiter func(name string) lockFunc // what one waiter locks with, again and again
		close  func()
	}

	// lockFunc waits until it holds the lock or ctx is done. ctx stays alive through the hold, and has
	// a deadline further off than the TTL: some libraries end the hold with ctx, or invent a deadline.
	lockFunc func(ctx context.Context) (unlockFunc, error)

	unlockFunc func(ctx context.Context) error
)

const lockerModule = "github.com/go-locker/locker"

// clientOf is a client of ours on connections that are closed after it.
func clientOf(c *locker.Client, closeConns func()) *client {
	return &client{
		waiter: func(name string) lockFunc {
			m := c.Mutex(name)
			return func(ctx context.Context) (unlockFunc, error) { return m.Unlock, m.Lock(ctx) }
		},
		close: func() { _ = c.Close(); closeConns() },
	}
}

// lockName is one that all servers allow.
func (l library) lockName(what string, details ...any) string {
	parts := fmt.Sprintln(append([]any{what, l.name}, details...)...)
	return strings.NewReplacer(" ", "-", ",", "-").Replace(strings.TrimSpace(parts))
}

// openClients opens n clients, or none.
func (l library) openClients(n int, addrs []string, sent *tally) ([]*client, func(), error) {
	clients := make([]*client, 0, n)
	closeAll := func() {
		for _, c := range clients {
			c.close()
		}
	}
	for range n {
		c, err := l.open(addrs, sent, l.ttl)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		clients = append(clients, c)
	}
	return clients, closeAll, nil
}

// once locks and unlocks once.
func once(ctx context.Context, lockIt lockFunc) (lock, unlock time.Duration, err error) {
	start := time.Now()
	unlockIt, err := lockIt(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("lock: %w", err)
	}
	locked := time.Now()
	if err := unlockIt(ctx); err != nil {
		return 0, 0, fmt.Errorf("unlock: %w", err)
	}
	return locked.Sub(start), time.Since(locked), nil
}

// release unlocks also if ctx has ended.
func release(ctx context.Context, unlock unlockFunc) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return unlock(ctx)
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

var (
	bare  = []string{"bare", "bare-autopipeline", "locker-background"}
	calm  = contention{hold: time.Millisecond, think: 20 * time.Millisecond, clients: 64}
	eager = contention{hold: time.Millisecond, clients: 4}
)

const (
	aboutPairs  = "A Lock, an Unlock, and both (a pair) of one goroutine that nobody competes with, in µs."
	aboutApart  = "Goroutines share a client; each locks a name of its own."
	aboutKilled = "100 wait for one name, with a TTL of 6 s. The time until one of them has the lock: after the first waiter was killed (SIGKILL) and the holder unlocks a moment later, and after the holder was killed."
)

// subjects is all that can be measured. It is filled in init, for what measures kills looks
// libraries up in it.
var subjects []subject

func init() {
	subjects = []subject{
		{"redis", "One Redis server", startRedis(1), redisLibraries, []part{
			{"pairs", aboutPairs, "bare", nil, pairs},
			{"apart", aboutApart, "bare-autopipeline", nil, apart(64, 512)},
			{"contended", "Many want one name, over at most 64 clients. A hold lasts 1 ms; then the waiter pauses for 20 ms. The longest wait may not have ended.", "redsync", append(bare, "locker-redigo"), contended(calm, 2, 32, 256, 1024)},
			{"handover", "The time from the call of Unlock until the Lock of one of 8 waiters returns. PING was measured at the same time.", "", append(bare, "locker-redigo"), handover},
			{"killed", aboutKilled, "", append(bare, "locker-redigo"), killed(100, 64)},
			{
				"idle", "50 wait behind one hold, each on a client of its own, and nothing happens.", "",
				append(bare, "locker-redigo"), idle(50),
			},
			{"held", "One client holds locks with a TTL of 30 s. Requests, server µs and client µs are of 100 locks and one renewal of each; heap bytes of one lock.", "", nil, held(map[string]int{"locker": math.MaxInt, "locker-redigo": math.MaxInt, "rueidislock": 1000}, 10, 1000, 100_000)},
			{"names", "Each of many names is locked once. Bytes: how much the server's memory grew for each, at once and two minutes later.", "", bare, names},
		}},
		{"quorum", "Five Redis servers", startRedis(5), quorumLibraries, []part{
			{"pairs", aboutPairs, "redsync-failfast", nil, pairs},
			{"minority", "Two of five nodes are stopped (SIGSTOP: connections stay, and nobody answers) or killed. Times as long: as just before.", "", nil, minority},
			{"contended", "32 want one name, over 8 clients. A hold lasts 1 ms; then the waiter pauses for 20 ms.", "redsync-failfast", bare, contended(contention{calm.hold, calm.think, 8}, 32)},
			{"apart", aboutApart, "redsync-failfast", nil, apart(64)},
		}},
		{"etcd", "etcd, one server", startEtcd, etcdLibraries, []part{
			{"pairs", aboutPairs, "etcd bare", nil, pairs},
			{"contended", "Many want one name, over at most 4 clients. A hold lasts 1 ms; then the waiter asks again at once.", "etcd concurrency.Mutex", []string{"etcd bare"}, contended(eager, 2, 32, 256)},
			{"killed", aboutKilled, "", []string{"etcd bare"}, killed(100, 4)},
		}},
		{"zookeeper", "ZooKeeper, one server", startZooKeeper, zooKeeperLibraries, []part{
			{"pairs", aboutPairs, "zookeeper bare", nil, pairs},
			{
				"contended", "As for etcd.", "zookeeper zk.Lock",
				[]string{"zookeeper bare"},
				contended(eager, 2, 32, 256),
			},
			{"killed", aboutKilled, "", []string{"zookeeper bare"}, killed(100, 4)},
		}},
		{"postgres", "PostgreSQL", startPostgres, postgresLibraries, []part{
			{"apart", aboutApart, "pg_advisory_lock", nil, apart(1, 16)},
			{
				"contended", "Many want one name, and ask again at once.", "pg_advisory_lock", nil,
				contended(contention{clients: 1}, 32, 256),
			},
		}},
	}
}

const pgxModule = "github.com/jackc/pgx/v5"

var postgresLibraries = []library{
	{"locker", lockerModule, "one Client, at most 16 connections", redisTTL, openPostgres},
	{
		"pg_advisory_lock", pgxModule, "a connection each", 0,
		openConnections(func(ctx context.Context, conn *pgx.Conn, name string) (unlockFunc, error) {
			_, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name)
			return func(ctx context.Context) error {
				_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", name)
				return err
			}, err
		}),
	},
	{
		"SELECT … FOR UPDATE", pgxModule, "a connection each", 0,
		openConnections(func(ctx context.Context, conn *pgx.Conn, name string) (unlockFunc, error) {
			tx, err := conn.Begin(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := tx.Exec(ctx, "SELECT FROM names WHERE name = $1 FOR UPDATE", name); err != nil {
				return nil, errors.Join(err, tx.Rollback(ctx))
			}
			return tx.Commit, nil
		}),
	},
}

func openPostgres(addrs []string, _ *tally, ttl time.Duration) (*client, error) {
	c, err := locker.Open(context.Background(), addrs[0]+"&pool_max_conns=16", locker.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	return clientOf(c, func() {}), nil
}

// openConnections makes a connection for each waiter, as a lock of a session or a transaction
// needs: when it first locks. There is a row for its name then.
func openConnections(lock func(ctx context.Context, conn *pgx.Conn, name string) (unlockFunc,
	error),
) open {
	return func(addrs []string, _ *tally, _ time.Duration) (*client, error) {
		var mu sync.Mutex
		var all []*pgx.Conn
		connect := func(ctx context.Context, name string) (*pgx.Conn, error) {
			conn, err := pgx.Connect(ctx, addrs[0])
			if err != nil {
				return nil, err
			}
			mu.Lock()
			all = append(all, conn)
			mu.Unlock()
			_, err = conn.Exec(ctx, "INSERT INTO names VALUES ($1) ON CONFLICT DO NOTHING", name)
			return conn, err
		}
		return &client{
			waiter: func(name string) lockFunc {
				var conn *pgx.Conn
				return func(ctx context.Context) (_ unlockFunc, err error) {
					if conn == nil {
						if conn, err = connect(ctx, name); err != nil {
							return nil, err
						}
					}
					return lock(ctx, conn, name)
				}
			},
			close: func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				for _, conn := range all {
					_ = conn.Close(ctx)
				}
			},
		}, nil
	}
}
