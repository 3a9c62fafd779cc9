package testserver

import (
	"strings"
	"testing"
)

// Its data is in a directory that is being removed at the end of this test, and that fails where somebody still writes into it.
func TestPostgres_runsAndIsGoneWithItsTest(t *testing.T) {
	onlyInCheck(t)
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
