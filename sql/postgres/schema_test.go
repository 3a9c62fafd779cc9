package postgres_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

var update = flag.Bool("update", false, "write testdata/functions.txt")

// A function that has changed has another name: programs of several releases share a database, and
// each needs its own. Before the release that brings a function, run go test -run TestSchema
// -update.
func TestSchema_aFunctionThatChangesHasANewName(t *testing.T) {
	t.Parallel()
	const golden = "testdata/functions.txt"
	var now strings.Builder
	function := regexp.MustCompile(`(?s)CREATE OR REPLACE FUNCTION public\.(\w+_v\d+)\(.*?\nEND \$locker\$;\n`)
	source, err := os.ReadFile("schema.sql")
	require.NoError(t, err)
	all := function.FindAllStringSubmatch(string(source), -1)
	require.Len(t, all, strings.Count(string(source), "FUNCTION public."))
	for _, f := range all {
		fmt.Fprintf(&now, "%s %x\n", f[1], sha256.Sum256([]byte(f[0])))
	}
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(now.String()), 0o644))
	}
	before, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(before), now.String(), "a function was changed: give it the next version in its name")
}

// The statements of the release before this protocol find no table that they can use, nor do ours:
// programs of both never hold in the same table, and the error says what to do.
func TestLock_besideAnEarlierRelease(t *testing.T) {
	t.Parallel()
	const table = `CREATE TABLE IF NOT EXISTS locker_locks (key bytea PRIMARY KEY, name bytea NOT NULL, token bigint NOT NULL,
		version bigint NOT NULL, owner bytea NOT NULL, metadata bytea NOT NULL, expires_at timestamptz NOT NULL, released boolean NOT NULL,
		waiters bytea[] NOT NULL DEFAULT '{}', alive timestamptz[] NOT NULL DEFAULT '{}', waiting bytea[] NOT NULL DEFAULT '{}')`
	s := testserver.Postgres(t)
	execute(t, s.URL(), table)
	err := openURL(t, s.URL()).Mutex("x").Lock(withTimeout(t, 20*time.Second))
	require.ErrorContains(t, err, `the table "public"."locker_locks" is that of an earlier release`)
	require.NotErrorIs(t, err, locker.ErrHeld)

	execute(t, s.URL(), "DROP TABLE locker_locks")
	m := held(t, openURL(t, s.URL()), 1)
	conn := session(t, s.URL())
	for _, statement := range []string{
		`INSERT INTO locker_locks (key, name, token, version, owner, metadata, expires_at, released)
			VALUES ('k', 'n', 1, 1, '', '', clock_timestamp(), true)`,
		`UPDATE locker_locks SET released = false, owner = 'o' WHERE version = 0 AND (released OR expires_at <= clock_timestamp())`,
	} {
		_, err := conn.Exec(t.Context(), statement)
		require.ErrorContains(t, err, "42703", "a column is not there")
	}
	unlock(t, m...)
}

// PostgreSQL cuts names after 63 bytes: those of functions would lose their versions, and tables
// would be one.
func TestTable_whoseNameIsTooLong(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	lock := func(table string) error {
		m := openURL(t, url+"&table="+table).Mutex("x")
		if err := m.Lock(t.Context()); err != nil {
			return err
		}
		return m.Unlock(t.Context())
	}
	require.NoError(t, lock(strings.Repeat("n", 50)))
	require.ErrorContains(t, lock(strings.Repeat("n", 51)), "more than 50 bytes")
	require.ErrorContains(t, lock("public."+strings.Repeat("n", 63)), "more than 50 bytes")
}
