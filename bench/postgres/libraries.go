package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/wire"
	_ "github.com/go-locker/locker/postgres" // postgres://
)

const usualTTL = 30 * time.Second

const pgxModule = "github.com/jackc/pgx/v5"

var libraries = contend.Libraries{
	{
		Name: "locker", Module: "github.com/go-locker/locker", Settings: "one Client, at most 16 connections",
		TTL: usualTTL, Open: openLocker,
	},
	{
		Name: "pg_advisory_lock", Module: pgxModule, Settings: "a connection each",
		Open: connections(func(ctx context.Context, conn *pgx.Conn, name string) (contend.UnlockFunc, error) {
			_, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name)
			return func(ctx context.Context) error {
				_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", name)
				return err
			}, err
		}),
	},
	{
		Name: "SELECT … FOR UPDATE", Module: pgxModule, Settings: "a connection each",
		Open: connections(func(ctx context.Context, conn *pgx.Conn, name string) (contend.UnlockFunc, error) {
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

func openLocker(addrs []string, _ *wire.Tally, ttl time.Duration) (*contend.Client, error) {
	c, err := locker.Open(context.Background(), addrs[0]+"&pool_max_conns=16", locker.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	return &contend.Client{
		Waiter: func(name string) contend.LockFunc {
			m := c.Mutex(name)
			return func(ctx context.Context) (contend.UnlockFunc, error) { return m.Unlock, m.Lock(ctx) }
		},
		Close: func() { _ = c.Close() },
	}, nil
}

// connections makes a connection for each waiter, as a lock of a session or a transaction needs:
// when it first locks. There is a row for its name then.
func connections(
	lock func(ctx context.Context, conn *pgx.Conn, name string) (contend.UnlockFunc, error),
) func([]string, *wire.Tally, time.Duration) (*contend.Client, error) {
	return func(addrs []string, _ *wire.Tally, _ time.Duration) (*contend.Client, error) {
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
		return &contend.Client{
			Waiter: func(name string) contend.LockFunc {
				var conn *pgx.Conn
				return func(ctx context.Context) (_ contend.UnlockFunc, err error) {
					if conn == nil {
						if conn, err = connect(ctx, name); err != nil {
							return nil, err
						}
					}
					return lock(ctx, conn, name)
				}
			},
			Close: func() {
				for _, conn := range all {
					_ = conn.Close(context.Background())
				}
			},
		}, nil
	}
}
