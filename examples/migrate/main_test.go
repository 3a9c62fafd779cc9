package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = testwait.Patience(30 * time.Second)

func TestRun_oneOfManyApplies(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, "mem://"+t.Name(), "", 5))
	assertOnce(t, out.String(), 5)
}

func assertOnce(t *testing.T, said string, instances int) {
	t.Helper()
	assert.Equal(t, 2, strings.Count(said, "applied"), said)
	assert.Equal(t, instances-1, strings.Count(said, "nothing to do"), said)
}

func TestProcesses_onRedis(t *testing.T) {
	t.Parallel()
	together(t, testserver.Redis(t).URL())
}

func TestProcesses_onEtcd(t *testing.T) {
	t.Parallel()
	testwait.OnlyNightly(t, "TestProcesses_onRedis is the same on another backend")
	together(t, testserver.Etcd(t).URL()+"?ttl=2s")
}

func TestProcesses_onZooKeeper(t *testing.T) {
	t.Parallel()
	testwait.OnlyNightly(t, "TestProcesses_onRedis is the same on another backend")
	together(t, testserver.ZooKeeper(t).URL()+"?ttl=2s")
}

// together has three processes start at once.
func together(t *testing.T, lock string) {
	t.Helper()
	dir := t.TempDir()
	program, db := filepath.Join(dir, "migrate.exe"), filepath.Join(dir, "shop 100%.sqlite")
	build, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", build)
	misplaced, err := exec.CommandContext(t.Context(), program, "mem://x", "-db=x").CombinedOutput()
	require.Error(t, err, "a flag that would be ignored")
	assert.Contains(t, string(misplaced), "flags come before the URL")
	var ps [3]*exec.Cmd
	var out [3]bytes.Buffer
	for i := range ps {
		ps[i] = exec.CommandContext(t.Context(), program, "-instances=2", "-db="+db, lock)
		ps[i].Stdout, ps[i].Stderr = &out[i], &out[i]
		require.NoError(t, ps[i].Start())
	}
	for i, p := range ps {
		require.NoError(t, p.Wait(), "%s", &out[i])
	}
	assertOnce(t, out[0].String()+out[1].String()+out[2].String(), 6)
	_, err = os.Stat(db)
	require.NoError(t, err)
}

// instance is a process of its own.
type instance struct {
	lock *locker.Mutex
	db   *sql.DB
}

func newInstance(t *testing.T, lock, file string, opts ...locker.Option) instance {
	t.Helper()
	client, err := locker.Open(t.Context(), lock, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	db, err := openSQLite(file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return instance{client.Mutex("migrate"), db}
}

func files(t *testing.T) fs.FS {
	t.Helper()
	f, err := fs.Sub(embedded, "migrations")
	require.NoError(t, err)
	return f
}

// fill is a third migration: it writes a row, and then does what then says.
func fill(then func(context.Context) error) goose.ProviderOption {
	return goose.WithGoMigrations(goose.NewGoMigration(3, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, state) VALUES (43, 'open')"); err != nil {
			return err
		}
		return then(ctx)
	}}, nil))
}

func (i instance) orders(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, i.db.QueryRowContext(t.Context(), "SELECT count(*) FROM orders").Scan(&n))
	return n
}

func TestMigrate_whoLosesTheLockHalfwayLeavesNothing(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	file, lock := filepath.Join(t.TempDir(), "db"), s.URL()+"?ttl=2s"
	first, second := newInstance(t, lock, file), newInstance(t, lock, file)
	halfway := make(chan struct{})
	done := testwait.Go(func() error {
		applied, err := migrate(t.Context(), first.lock, first.db, files(t), fill(func(ctx context.Context) error {
			close(halfway)
			<-ctx.Done() // as a long statement would
			return context.Cause(ctx)
		}))
		assert.Empty(t, applied)
		return err
	})
	<-halfway
	s.Do("FLUSHALL") // the server has lost its data, and with them the lock
	applied, err := migrate(t.Context(), second.lock, second.db, files(t), fill(func(context.Context) error { return nil }))
	require.NoError(t, err)
	require.ErrorIs(t, patience.Result(t, done), locker.ErrLost)
	assert.Len(t, applied, 1)
	assert.EqualValues(t, 3, applied[0].Source.Version)
	assert.Equal(t, 2, second.orders(t), "one of them by the migration")
}

func TestMigrate_whoIsStoppedHalfwayLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	i := newInstance(t, "mem://"+t.Name(), filepath.Join(t.TempDir(), "db"))
	_, err := migrate(ctx, i.lock, i.db, files(t), fill(func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	}))
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, i.orders(t))
	applied, err := migrate(t.Context(), i.lock, i.db, files(t))
	require.NoError(t, err, "the lock is free")
	assert.Empty(t, applied)
}

func TestMigrate_oneThatFailsIsTriedAgainByTheNext(t *testing.T) {
	t.Parallel()
	i := newInstance(t, "mem://"+t.Name(), filepath.Join(t.TempDir(), "db"))
	failed := errors.New("no such thing")
	for range 2 {
		_, err := migrate(t.Context(), i.lock, i.db, files(t), fill(func(context.Context) error { return failed }))
		require.ErrorIs(t, err, failed)
		assert.Equal(t, 1, i.orders(t))
	}
	applied, err := migrate(t.Context(), i.lock, i.db, files(t), fill(func(context.Context) error { return nil }))
	require.NoError(t, err)
	assert.Len(t, applied, 1)
}

func TestStart_saysWhichMigrationFails(t *testing.T) {
	t.Parallel()
	broken := fstest.MapFS{"00001_typo.sql": {Data: []byte("-- +goose Up\nCREATE TABEL x (id INTEGER);\n")}}
	err := start(t.Context(), "mem://"+t.Name(), filepath.Join(t.TempDir(), "db"), broken, func(string, ...any) {})
	require.ErrorContains(t, err, "TABEL")
	var partial *goose.PartialError
	require.ErrorAs(t, err, &partial)
	assert.EqualValues(t, 1, partial.Failed.Source.Version)
}

func TestRun_saysWhatIsWrongWithTheURL(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), &strings.Builder{}, "none://", "", 1), "none")
}
