package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker/internal/test/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
