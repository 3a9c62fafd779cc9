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
)

// prepare gives the locks a table of their own in PostgreSQL, if the user may create one: the rows
// of a check, and what deleting them leaves, are not to be in that of others. Under a prefix of
// others it is theirs, because of access rights.
func (g *ground) prepare(ctx context.Context) {
	if g.deployment.kind() != "postgres" || g.mark != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	schema := "public"
	params := slices.DeleteFunc(slices.Clone(g.deployment.params), func(p string) bool { return strings.HasPrefix(p, "table=") })
	if query, err := g.deployment.query(); err == nil {
		if of, _, ok := strings.Cut(query.Get("table"), "."); ok {
			schema = of
		}
	}
	may := false
	_ = g.onPostgres(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT has_schema_privilege($1, 'CREATE')", schema).Scan(&may)
	})
	if may {
		g.table = fmt.Sprintf("%s.locker_check_%08x", schema, rand.Uint32())
		params = append(params, "table="+g.table)
		g.deployment.params = params
	}
}

// dropTable drops the table of prepare, and all else that begins with its name.
func (g *ground) dropTable(ctx context.Context) error {
	if g.table == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	schema, table, _ := strings.Cut(g.table, ".")
	return g.onPostgres(ctx, func(c *pgx.Conn) error {
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
	})
}

// onPostgres calls f with a connection of its own.
func (g *ground) onPostgres(ctx context.Context, f func(*pgx.Conn) error) error {
	of := g.deployment
	of.scheme = "postgres"
	of.params = slices.DeleteFunc(slices.Clone(of.params), func(p string) bool {
		name, _, _ := strings.Cut(p, "=")
		return !slices.Contains([]string{"host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "connect_timeout"}, name)
	})
	c, err := pgx.Connect(ctx, of.url(of.hosts))
	if err != nil {
		return errors.New("no connection to PostgreSQL") // the error may have the URL in it
	}
	defer func() { _ = c.Close(ctx) }()
	return f(c)
}
