package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sqllock"
)

// prepare gives the locks a table of their own in PostgreSQL and MySQL, if the user may create one:
// the rows of a check, and what deleting them leaves, are not to be in that of others. Under a
// prefix of others it is theirs, because of access rights.
func (g *ground) prepare(ctx context.Context) {
	schema, ok := map[string]string{"postgres": "public.", "mysql": ""}[g.deployment.kind()]
	if !ok || g.mark != "" {
		return
	}
	given := g.deployment
	if of, _, ok := strings.Cut(given.Query.Get("table"), "."); ok {
		schema = of + "."
	}
	g.table = fmt.Sprintf("%slocker_check_%08x", schema, rand.Uint32())
	g.deployment = given.with("table", g.table)
	if g.makeTable(ctx) != nil {
		_ = g.dropTable(context.WithoutCancel(ctx))
		g.deployment, g.table = given, ""
	}
}

// makeTable makes it by a lock, which needs the rights that other locks need. It is not
// interrupted: a table may be made after the one who gave up has dropped it.
func (g *ground) makeTable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	c, err := g.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	m := c.Mutex(g.name("table"))
	if err := m.TryLock(ctx); err != nil {
		return err
	}
	return m.Unlock(ctx)
}

// dropTable drops the table of prepare, if there is one.
func (g *ground) dropTable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	switch {
	case g.table == "":
		return nil
	case g.deployment.kind() == "mysql":
		return g.dropInMySQL(ctx)
	default:
		return g.dropInPostgres(ctx)
	}
}

// dropInMySQL has the driver drop its tables.
func (g *ground) dropInMySQL(ctx context.Context) error {
	of := g.deployment.only(func(name string) bool { return slices.Contains([]string{"table", "tls", "connect_timeout"}, name) })
	u, err := driver.ParseURL(of.url(of.Hosts))
	if err != nil {
		return err
	}
	d, err := driver.Open(ctx, u)
	if err != nil {
		return err
	}
	return errors.Join(d.(*sqllock.Driver).Drop(ctx), d.Close())
}

// dropInPostgres drops the table of prepare, and all else that begins with its name.
func (g *ground) dropInPostgres(ctx context.Context) error {
	of := g.deployment.only(func(name string) bool {
		return slices.Contains([]string{"host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "connect_timeout"}, name)
	})
	of.Scheme = "postgres"
	c, err := pgx.Connect(ctx, of.url(of.Hosts))
	if err != nil {
		return errors.New("no connection to PostgreSQL") // the error may have the URL in it
	}
	defer func() { _ = c.Close(ctx) }()
	schema, table, _ := strings.Cut(g.table, ".")
	rows, _ := c.Query(ctx, `
		SELECT 'DROP TABLE IF EXISTS ' || oid::regclass || ' CASCADE' FROM pg_class
		WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND starts_with(relname, $2)
		UNION ALL SELECT 'DROP ROUTINE IF EXISTS ' || oid::regprocedure || ' CASCADE' FROM pg_proc
		WHERE pronamespace = $1::regnamespace AND starts_with(proname, $2)`, schema, table)
	drops, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, drop := range drops {
		_, dropErr := c.Exec(ctx, drop)
		err = errors.Join(err, dropErr)
	}
	return err
}
