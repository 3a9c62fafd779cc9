package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/postgres" // postgres://
)

const pgxModule = "github.com/jackc/pgx/v5"

var postgresLibraries = []library{
	{"locker", lockerModule, "one Client, at most 16 connections", redisTTL, openPostgres},
	{"pg_advisory_lock", pgxModule, "a connection each", 0, openConnections(func(ctx context.Context, conn *pgx.Conn, name string) (unlockFunc, error) {
		_, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name)
		return func(ctx context.Context) error {
			_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", name)
			return err
		}, err
	})},
	{"SELECT … FOR UPDATE", pgxModule, "a connection each", 0, openConnections(func(ctx context.Context, conn *pgx.Conn, name string) (unlockFunc, error) {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, "SELECT FROM names WHERE name = $1 FOR UPDATE", name); err != nil {
			return nil, errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit, nil
	})},
}

func openPostgres(addrs []string, _ *tally, ttl time.Duration) (*client, error) {
	c, err := locker.Open(context.Background(), addrs[0]+"&pool_max_conns=16", locker.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	return clientOf(c, func() {}), nil
}

// openConnections makes a connection for each waiter, as a lock of a session or a transaction needs: when it first locks. There
// is a row for its name then.
func openConnections(lock func(ctx context.Context, conn *pgx.Conn, name string) (unlockFunc, error)) open {
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
