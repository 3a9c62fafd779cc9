package testserver

import "testing"

// SharedPostgres is SharedRedis for PostgreSQL. Tests side by side need databases of their own.
func SharedPostgres(t testing.TB) *PostgresServer {
	t.Helper()
	return shared(t, &sharedPostgres, func(t testing.TB) *PostgresServer { return Postgres(t) })
}

// SharedMariaDB returns a MariaDB server that several tests share, as SharedPostgres does.
func SharedMariaDB(t testing.TB) *MariaDBServer {
	t.Helper()
	return shared(t, &sharedMariaDB, func(t testing.TB) *MariaDBServer { return MariaDB(t) })
}

var (
	sharedPostgres *PostgresServer
	sharedMariaDB  *MariaDBServer
)
