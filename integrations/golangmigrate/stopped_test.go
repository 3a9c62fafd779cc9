//go:build unix

package golangmigrate_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/integrations/golangmigrate"
	"github.com/go-locker/locker/internal/test/child"
)

// What a process that migrates is told in its environment.
const (
	envLock    = "LOCKER_MIGRATE_LOCK"
	envDialect = "LOCKER_MIGRATE_DIALECT"
	envDSN     = "LOCKER_MIGRATE_DSN"
	envFenced  = "LOCKER_MIGRATE_FENCED"
)

func init() { child.Register("migrate", serveMigrate) }

// serveMigrate is a process that migrates, and says when it is about to begin its second migration.
// Then it waits for a word.
func serveMigrate(t testing.TB) {
	d := target{golangmigrate.Dialect(os.Getenv(envDialect)), os.Getenv(envDSN)}
	inner := hooked{Driver: d.inner(t), beforeVersion: func(version int, dirty bool) {
		if version == 2 && dirty {
			fmt.Println("halfway")
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		}
	}}
	var driver database.Driver = golangmigrate.New(mutex(t, os.Getenv(envLock)), inner)
	if os.Getenv(envFenced) == "true" {
		driver = fenced(t, mutex(t, os.Getenv(envLock)), d.dialect, inner)
	}
	err := migrator(t, driver, migrations).Up()
	fmt.Println("done", err == nil, errors.Is(err, locker.ErrLost), errors.Is(err, fence.ErrStale))
}

// A process is stopped for longer than its TTL, right before it records that its second migration
// begins. Another runs all that there are, and then it wakes.
func TestStopped(t *testing.T) {
	t.Parallel()
	for server, url := range servers {
		for dialect, newDatabase := range databases {
			for _, isFenced := range []bool{false, true} {
				if dialect == golangmigrate.SQLite && server != "Redis" {
					continue
				}
				t.Run(fmt.Sprintf("lock on %s, migrations on %s, fenced: %t", server, dialect, isFenced), func(t *testing.T) {
					t.Parallel()
					space, d := space(), newDatabase(t)
					lock := url(t) + "prefix=" + space
					p := child.Start(t, "migrate", envLock+"="+lock+"&ttl=6s", envDialect+"="+string(dialect), envDSN+"="+d.dsn, envFenced+"="+fmt.Sprint(isFenced))
					p.Says("halfway")
					p.Stop()
					p.Tell("go on")
					other := golangmigrate.New(mutex(t, lock), d.inner(t))
					if isFenced {
						other = fenced(t, mutex(t, lock), dialect, d.inner(t))
					}
					other.LockTimeout = time.Minute // on a busy machine
					m := migrator(t, other, migrations)
					m.LockTimeout = 2 * time.Minute
					require.NoError(t, m.Up())
					assertState(t, d, 11, 3, false)
					p.Continue()
					assert.Equal(t, []string{"false", "true", fmt.Sprint(isFenced)}, p.Says("done"), "whether it succeeded, was told of the loss, and refused")
					if isFenced {
						assertState(t, d, 11, 3, false)
						return
					}
					assertState(t, d, 11, 2, true)
					require.ErrorAs(t, m.Up(), &migrate.ErrDirty{}, "one step was made, and it stops everybody")
				})
			}
		}
	}
}
