package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-locker/locker/driver"
)

// parameters are those of pgx that a URL of ours may have, too.
var parameters = []string{
	"host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "connect_timeout", "application_name", "pool_max_conns",
	"default_query_exec_mode",
}

const connectTimeout = "5" // seconds

func init() {
	driver.Register("postgres", open)
	driver.Register("postgresql", open)
}

// open makes a pool of its own, which connects when it is first used.
func open(_ context.Context, u *driver.URL) (driver.Driver, error) {
	table, ok := u.Take("table")
	if ok && table == "" {
		return nil, errors.New("parameter table is empty")
	}
	config, err := poolConfig(u)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	d := newDriver(pool, table)
	d.close = pool.Close
	return d, nil
}

func poolConfig(u *driver.URL) (*pgxpool.Config, error) {
	query := url.Values{}
	for _, p := range parameters {
		if value, ok := u.Take(p); ok {
			query.Set(p, value)
		}
	}
	if err := u.Unknown(); err != nil { // before the pool starts its goroutines
		return nil, err
	}
	if query.Has("host") && len(u.Hosts) > 0 {
		return nil, errors.New("the URL has a host and the parameter host, which is for the folder of a Unix socket, as in postgres:///app?host=/run/postgresql")
	}
	if !query.Has("connect_timeout") { // of each host: one that hangs must not use up the time of the others
		query.Set("connect_timeout", connectTimeout)
	}
	if len(u.Hosts) > 1 { // it costs a round trip for each connection
		query.Set("target_session_attrs", "read-write")
	}
	whole := url.URL{Scheme: "postgres", User: u.User, Host: strings.Join(u.Hosts, ","), Path: u.Path, RawQuery: query.Encode()}
	config, err := pgxpool.ParseConfig(whole.String())
	if err != nil { // whose text has the URL in it, and may have a password
		return nil, fmt.Errorf("pgx does not accept %v: see its parameters %s", u, strings.Join(parameters, ", "))
	}
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		// pgx reads TLS files when it parses, and they may have been replaced since.
		if now, err := pgxpool.ParseConfig(whole.String()); err == nil {
			c.TLSConfig, c.Fallbacks = now.ConnConfig.TLSConfig, now.ConnConfig.Fallbacks
		}
		return nil
	}
	return config, nil
}
