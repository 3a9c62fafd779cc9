//go:build unix

package main

import (
	"crypto/tls"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

const patience = testwait.Patience(time.Minute)

func TestProcesses_onRedis(t *testing.T) {
	t.Parallel()
	together(t, "redis://:s3cret@"+testserver.Redis(t, testserver.RedisConfig("requirepass s3cret")).Addr())
}

// process is the program under way. What it says is in a file.
type process struct {
	*exec.Cmd

	done <-chan error // of Wait
	said string
}

func (p *process) output() string {
	said, _ := os.ReadFile(p.said)
	return string(said)
}

var serves = regexp.MustCompile(`serves https://(\S+)`)

// certificate returns the one that the process shows to those who connect, which it does when it serves.
func (p *process) certificate(t *testing.T) []byte {
	t.Helper()
	var at []string
	patience.Until(t, "serves", func() bool { at = serves.FindStringSubmatch(p.output()); return at != nil || len(p.done) > 0 })
	require.NotNil(t, at, "it ended: %s", p.output())
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // signed by nobody whom anybody trusts
	c, err := d.DialContext(t.Context(), "tcp", at[1])
	require.NoError(t, err)
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw
}

// together has two processes do everything once: those that start at the same time, and have their files and the lock in common.
func together(t *testing.T, lock string) {
	t.Helper()
	file := write(t, t.TempDir(), lock, "")
	ps := [2]*process{{Cmd: program(t, file)}, {Cmd: program(t, file)}}
	for _, p := range ps {
		said, err := os.CreateTemp(t.TempDir(), "said")
		require.NoError(t, err)
		p.said, p.Stdout, p.Stderr = said.Name(), said, said
		require.NoError(t, p.Start())
		require.NoError(t, said.Close())
		p.done = testwait.Go(p.Wait)
	}
	assert.Equal(t, ps[0].certificate(t), ps[1].certificate(t))
	c, err := load(file)
	require.NoError(t, err)
	db, err := openSQLite(c.Database)
	require.NoError(t, err)
	defer db.Close()
	const ticks = 3
	patience.Until(t, "ticks", func() bool { return len(reports(t, db)) >= ticks })
	for _, p := range ps {
		require.NoError(t, p.Process.Signal(os.Interrupt))
	}
	for _, p := range ps {
		require.NoError(t, patience.Result(t, p.done), "%s", p.output())
	}
	said := ps[0].output() + ps[1].output()
	assertOnce(t, said)
	assert.NotContains(t, said, "s3cret")
	assert.NoDirExists(t, filepath.Join(c.Certificates, "locks"), "those of the storage")

	ran := reports(t, db)
	for i := range ran[1:] {
		assert.Equal(t, c.Report.Every, ran[i+1].Sub(ran[i]), "each tick once:\n%s", said)
	}
}

// reports returns the ticks that were run, in the order in which they were.
func reports(t *testing.T, db *sql.DB) (ticks []time.Time) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT tick FROM reports ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var tick string
		require.NoError(t, rows.Scan(&tick))
		at, err := time.Parse(time.RFC3339, tick)
		require.NoError(t, err)
		ticks = append(ticks, at)
	}
	require.NoError(t, rows.Err())
	return ticks
}
