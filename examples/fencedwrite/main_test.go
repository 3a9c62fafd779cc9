package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// TestMain is the main of Alice's process too, which is this program again.
func TestMain(m *testing.M) {
	if encoded := os.Getenv(aliceVariable); encoded != "" {
		if err := runAlice(context.Background(), encoded); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const patience = testwait.Patience(30 * time.Second)

// ttl of the tests is one that all servers grant, and that a busy machine does not stand still for.
const ttl = 2 * time.Second

var steps = []string{
	"Without a fence",
	"alice  holds the lock", "alice  is stopped", "bob    gets the lock", "reads 100, and writes 100 + 50 = 150",
	"alice  goes on, and writes 100 + 10 = 110; her Unlock says: the lock was lost", "the balance is 110: Bob's 50 are LOST",
	"With a fence",
	"alice  holds the lock", "alice  is stopped", "bob    gets the lock", "reads 100, and writes 100 + 50 = 150",
	"alice  goes on, and writes 100 + 10 = 110: REFUSED, stale fencing token; her Unlock says: the lock was lost",
	"the balance is 150: Bob's 50 are there",
}

func assertStory(t *testing.T, told string) {
	t.Helper()
	rest := told
	for _, step := range steps {
		_, after, found := strings.Cut(rest, step)
		require.True(t, found, "want %q, in this order, in:\n%s", step, told)
		rest = after
	}
}

func check(t *testing.T, s settings) {
	t.Helper()
	s.TTL = ttl
	var out strings.Builder
	require.NoError(t, run(t.Context(), s, &out), "%s", &out)
	assertStory(t, out.String())
}

func TestProgram(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "fencedwrite.exe")
	build, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", build)
	misplaced, err := exec.CommandContext(t.Context(), program, "mem://x", "-ttl=3s").CombinedOutput()
	require.Error(t, err, "a flag that would be ignored")
	assert.Contains(t, string(misplaced), "flags come before the URL")
	var out bytes.Buffer
	p := exec.CommandContext(t.Context(), program, "-ttl", ttl.String())
	p.Stdout, p.Stderr = &out, &out
	require.NoError(t, p.Run(), "%s", &out)
	assertStory(t, out.String())
}

func TestRun_onRedis(t *testing.T) {
	t.Parallel()
	check(t, settings{Lock: testserver.Redis(t).URL()})
}

func TestRun_inPostgres(t *testing.T) {
	t.Parallel()
	testwait.OnlyNightly(t, "TestRun_inAFile is the same in another database")
	database := testserver.Postgres(t).URL()
	check(t, settings{Lock: "mem://" + t.Name(), Database: database})
	assertNoTable(t, database)
}

func TestRun_inMariaDB(t *testing.T) {
	t.Parallel()
	testwait.OnlyNightly(t, "TestRun_inAFile is the same in another database")
	database := "mysql://root:s3cret%2F@" + testserver.MariaDB(t).Addr() + "/locker?timeout=10s"
	check(t, settings{Lock: "mem://" + t.Name() + "?prefix=app", Database: database})
	assertNoTable(t, database)
}

func TestRun_inAFile(t *testing.T) {
	t.Parallel()
	database := filepath.Join(t.TempDir(), "100% accounts?.sqlite")
	check(t, settings{Lock: "mem://" + t.Name(), Database: database})
	_, err := os.Stat(database)
	require.NoError(t, err)
}

func assertNoTable(t *testing.T, database string) {
	t.Helper()
	db, _, err := openDB(database)
	require.NoError(t, err)
	defer db.Close()
	var tables int
	require.NoError(t, db.QueryRowContext(t.Context(),
		"SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'fencedwrite%'").Scan(&tables))
	assert.Zero(t, tables, "left behind")
}

// watched is the output of the story, which a test reads.
type watched struct {
	mu  sync.Mutex
	out strings.Builder
}

func (w *watched) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(text)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.String()
}

// That Alice has ended too goes without saying: run waits for her process.
func TestRun_interruptedWhileAliceIsStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	database := filepath.Join(t.TempDir(), "accounts.sqlite")
	var out watched
	s := settings{Lock: "mem://" + t.Name(), TTL: time.Hour, Database: database}
	done := testwait.Go(func() error { return run(ctx, s, &out) })
	patience.Until(t, "Alice is stopped", func() bool { return strings.Contains(out.String(), "is stopped") })
	cancel()
	require.ErrorIs(t, patience.Result(t, done), context.Canceled)
	db, err := sql.Open("sqlite", database)
	require.NoError(t, err)
	defer db.Close()
	var tables int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_master").Scan(&tables))
	assert.Zero(t, tables, "left behind")
}

func TestRun_saysWhyAliceHasFailed(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), settings{Lock: "none://:s3cret@h", TTL: ttl}, &strings.Builder{})
	require.ErrorContains(t, err, "alice has ended")
	require.ErrorContains(t, err, "none")
	assert.NotContains(t, err.Error(), "s3cret")
}

func TestRun_ofADatabaseThatIsNone(t *testing.T) {
	t.Parallel()
	for _, database := range []string{
		"oracle://u:s3cret@h/db", "mysql://u:s3cret@h:port/db", "mysql://u:s3cret@127.0.0.1:1/db", "mysql://u:s3cret@h/db?tls=none",
		"postgres://u:s3cret@h:port/db", "postgres://u:s3cret@127.0.0.1:1/db", filepath.Join(t.TempDir(), "no", "such", "file"),
	} {
		err := run(t.Context(), settings{Lock: "mem://" + t.Name(), TTL: ttl, Database: database}, &strings.Builder{})
		require.Error(t, err, database)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}
