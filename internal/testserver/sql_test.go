package testserver

import (
	"strings"
	"testing"
)

func TestMariaDB_greets(t *testing.T) {
	s := MariaDB(t)
	if err := s.greets(); err != nil {
		t.Error(err)
	}
}

// Its data is in a directory that is being removed at the end of this test, and that fails where somebody still writes into it.
func TestPostgres_runsAndIsGoneWithItsTest(t *testing.T) {
	var server *PostgresServer
	t.Run("test", func(t *testing.T) {
		server = Postgres(t)
		if !strings.HasPrefix(server.URL(), "postgres://postgres@127.0.0.1:") || !accepts(loopback(server.port)) {
			t.Errorf("nobody answers at %s", server.URL())
		}
	})
	if server != nil && (server.running() || accepts(loopback(server.port))) {
		t.Error("the server outlived its test")
	}
}
