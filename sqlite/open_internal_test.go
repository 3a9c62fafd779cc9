package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/fuzzurl"
)

func TestOpen_refuses(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite://": "path of a file", "sqlite:///": "path of a file", "sqlite://locks.db": "path of a file", "sqlite://h/locks.db": "path of a file",
		"sqlite://u:p@/locks.db": "path of a file", "sqlite:///locks.db?synchronous=off": "neither full", "sqlite:///locks.db?mode=ro": "mode",
	} {
		_, err := locker.Open(t.Context(), url)
		require.ErrorContains(t, err, want, url)
	}
}

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, "sqlite", open, "/var/lib/app/locks.db", "/a%20b%3F%23.db?synchronous=normal", "/")
}
