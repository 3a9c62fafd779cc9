package main

import (
	"context"
	"errors"
	"fmt"
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
		// shared is what a reader and a writer of the name lock with; nil if there are no shares.
		shared func(name string) (read, write lockFunc)
		close  func()
	}

	// lockFunc waits until it holds the lock or ctx is done. ctx stays alive through the hold, and has
	// a deadline further off than the TTL: some libraries end the hold with ctx, or invent a deadline.
	lockFunc func(ctx context.Context) (unlockFunc, error)

	unlockFunc func(ctx context.Context) error
)

// holder is a client whose holds are each asked for by name.
func holder(lock func(ctx context.Context, name string) (unlockFunc, error), closeConns func()) *client {
	return &client{
		waiter: func(name string) lockFunc {
			return func(ctx context.Context) (unlockFunc, error) { return lock(ctx, name) }
		},
		close: closeConns,
	}
}

const lockerModule = "github.com/go-locker/locker"

// clientOf is a client of ours on connections that are closed after it.
func clientOf(c *locker.Client, closeConns func()) *client {
	return &client{
		waiter: func(name string) lockFunc {
			m := c.Mutex(name)
			return func(ctx context.Context) (unlockFunc, error) { return m.Unlock, m.Lock(ctx) }
		},
		shared: func(name string) (read, write lockFunc) {
			m := c.RWMutex(name)
			of := func(acquire func(context.Context) (*locker.Hold, error)) lockFunc {
				return func(ctx context.Context) (unlockFunc, error) {
					h, err := acquire(ctx)
					if err != nil {
						return nil, err
					}
					return h.Unlock, nil
				}
			}
			return of(m.RAcquire), of(m.Acquire)
		},
		close: func() { _ = c.Close(); closeConns() },
	}
}

// lockName is one that all servers allow.
func (l library) lockName(what string, details ...any) string {
	parts := fmt.Sprintln(append([]any{what, l.name}, details...)...)
	return strings.NewReplacer(" ", "-", ",", "-").Replace(strings.TrimSpace(parts))
}

// once locks and unlocks once, and returns how long that took.
func once(ctx context.Context, lock lockFunc) (time.Duration, error) {
	start := time.Now()
	unlock, err := lock(ctx)
	if err != nil {
		return 0, fmt.Errorf("lock: %w", err)
	}
	if err := unlock(ctx); err != nil {
		return 0, fmt.Errorf("unlock: %w", err)
	}
	return time.Since(start), nil
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
	bare  = []string{"bare", "bare-autopipeline"}
	calm  = contention{hold: time.Millisecond, think: 20 * time.Millisecond, clients: 64}
	eager = contention{hold: time.Millisecond, clients: 4}
	five  = contention{hold: calm.hold, think: calm.think, clients: 8}
)

const (
	aboutPairs = "A Lock and its Unlock (a pair) of one goroutine that nobody competes with."
	aboutApart = "Goroutines share a client; each locks a name of its own."
	aboutNames = "Each of many names is locked once. Bytes: how much the server's memory grew for each."
	aboutHeld  = "One client holds locks with a TTL of 15 s. Requests and the servers' time are of 100 locks " +
		"and one renewal of each; bytes of one lock."
	aboutIdle = "Some wait behind one hold, each on a client of its own, and nothing happens."
	aboutCalm = "Many want one name, over at most 64 clients. A hold lasts 1 ms; then the waiter pauses for 20 ms. " +
		"The longest wait may not have ended."
	aboutFive    = "32 want one name, over 8 clients. A hold lasts 1 ms; then the waiter pauses for 20 ms."
	aboutEager   = "Many want one name, over at most 4 clients. A hold lasts 1 ms; then the waiter asks again at once."
	aboutAtOnce  = "Many want one name, and ask again at once."
	aboutReaders = "1,000 readers in ten clients hold the lock for 100 ms, and ask again; a writer writes once a second. " +
		"Beside `concurrency.Mutex` it is etcd's recipe `RWMutex`." // as the recipe is beside its Mutex
)

// subjects is all that can be measured.
var subjects = []subject{
	{"redis", "One Redis server", startRedis(1), redisLibraries, []part{
		{"pairs", aboutPairs, "bare", nil, apart, []int{1}},
		{"names", aboutNames, "", except(redisLibraries, "locker"), names, []int{200_000}},
		{"held", aboutHeld, "", except(redisLibraries, "locker"), held, []int{50_000}},
		{"apart", aboutApart, "bare-autopipeline", nil, apart, []int{64, 512}},
		{"contended", aboutCalm, "redsync", append(bare, "locker-redigo"), calm.contended, []int{32, 256, 1024}},
		{"idle", aboutIdle, "redsync", append(bare, "locker-redigo"), idle, []int{50, 1000}},
		{"readers", aboutReaders, "", except(redisLibraries, "locker"), shares, []int{1000}},
	}},
	{"quorum", "Five Redis servers", startRedis(5), quorumLibraries, []part{
		{"pairs", aboutPairs, "redsync-failfast", nil, apart, []int{1}},
		{"contended", aboutFive, "redsync-failfast", bare, five.contended, []int{32}},
		{"apart", aboutApart, "redsync-failfast", nil, apart, []int{64}},
	}},
	{"etcd", "etcd, one server", startEtcd, etcdLibraries, []part{
		{"pairs", aboutPairs, "etcd bare", nil, apart, []int{1}},
		{"contended", aboutEager, "etcd concurrency.Mutex", []string{"etcd bare"}, eager.contended, []int{2, 32, 256}},
		{"held", aboutHeld, "", except(etcdLibraries, "etcd locker"), held, []int{5000}},
		{"idle", aboutIdle, "etcd concurrency.Mutex", []string{"etcd bare"}, idle, []int{50, 200}},
		{"readers", aboutReaders, "etcd concurrency.Mutex", []string{"etcd bare"}, shares, []int{1000}},
	}},
	{"zookeeper", "ZooKeeper, one server", startZooKeeper, zooKeeperLibraries, []part{
		{"pairs", aboutPairs, "zookeeper bare", nil, apart, []int{1}},
		{"contended", aboutEager, "zookeeper zk.Lock", []string{"zookeeper bare"}, eager.contended, []int{2, 32, 256}},
		{"held", aboutHeld, "", except(zooKeeperLibraries, "zookeeper locker"), held, []int{5000}},
		{"idle", aboutIdle, "zookeeper zk.Lock", []string{"zookeeper bare"}, idle, []int{50}},
		{"readers", aboutReaders, "", except(zooKeeperLibraries, "zookeeper locker"), shares, []int{1000}},
	}},
	{"postgres", "PostgreSQL", startPostgres, postgresLibraries, []part{
		{"apart", aboutApart, "pg_advisory_lock", nil, apart, []int{1, 16}},
		{"contended", aboutAtOnce, "pg_advisory_lock", nil, contention{clients: 1}.contended, []int{32, 256, 1000}},
		{"held", aboutHeld, "", except(postgresLibraries, "locker"), held, []int{5000}},
		{"idle", aboutIdle, "pg_advisory_lock", nil, idle, []int{50}},
	}},
}

// except returns the names of all libraries but one.
func except(all []library, one string) (names []string) {
	for _, l := range all {
		if l.name != one {
			names = append(names, l.name)
		}
	}
	return names
}

const pgxModule = "github.com/jackc/pgx/v5"

var postgresLibraries = []library{
	{"locker", lockerModule, "one Client, at most 5 connections", redisTTL, openPostgres},
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
	c, err := locker.Open(context.Background(), addrs[0]+"&pool_max_conns=3", locker.WithTTL(ttl))
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
