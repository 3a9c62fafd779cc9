package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/postgres" // postgres://
)

// pair takes a lock, waits for it if need be, and gives it back.
type pair func(ctx context.Context) error

// kind is one kind of lock. open returns what makes a pair for a name.
type kind struct {
	name string
	open func(ctx context.Context, url string) (open func(name int) (pair, error), closeAll func(), err error)
}

var kinds = []kind{
	{"this library, one Client", library},
	{"pg_advisory_lock, a connection each", connections(func(ctx context.Context, conn *pgx.Conn, name int) error {
		_, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", name)
		if err == nil {
			_, err = conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", name)
		}
		return err
	})},
	{"SELECT … FOR UPDATE, a connection each", connections(func(ctx context.Context, conn *pgx.Conn, name int) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT FROM rows WHERE id = $1 FOR UPDATE", name); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	})},
}

func library(ctx context.Context, url string) (func(int) (pair, error), func(), error) {
	c, err := locker.Open(ctx, url+"&pool_max_conns=16")
	if err != nil {
		return nil, nil, err
	}
	open := func(name int) (pair, error) {
		m := c.Mutex(fmt.Sprint("name", name))
		return func(ctx context.Context) error {
			if err := m.Lock(ctx); err != nil {
				return err
			}
			return m.Unlock(ctx)
		}, nil
	}
	return open, func() { _ = c.Close() }, nil
}

// connections makes a connection for each pair, as a lock of a session or a transaction needs.
func connections(take func(ctx context.Context, conn *pgx.Conn, name int) error) func(context.Context, string) (func(int) (pair, error), func(), error) {
	return func(ctx context.Context, url string) (func(int) (pair, error), func(), error) {
		var all []*pgx.Conn
		connect := func() (*pgx.Conn, error) {
			conn, err := pgx.Connect(ctx, url)
			if err == nil {
				all = append(all, conn)
			}
			return conn, err
		}
		first, err := connect()
		if err != nil {
			return nil, nil, err
		}
		_, err = first.Exec(ctx, "CREATE TABLE IF NOT EXISTS rows (id int PRIMARY KEY); INSERT INTO rows SELECT generate_series(0, 999) ON CONFLICT DO NOTHING")
		unused := true
		open := func(name int) (pair, error) {
			conn := first
			if !unused {
				var err error
				if conn, err = connect(); err != nil {
					return nil, err
				}
			}
			unused = false
			return func(ctx context.Context) error { return take(ctx, conn, name) }, nil
		}
		return open, func() {
			for _, conn := range all {
				_ = conn.Close(ctx)
			}
		}, err
	}
}
