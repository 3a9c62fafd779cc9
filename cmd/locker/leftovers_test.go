package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/job"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// What is there before a check is there after it, and nothing else, whether it ends or is
// interrupted.
func TestCheck_leavesNothing(t *testing.T) {
	t.Parallel()
	const ttl = "4s"
	for backend, start := range map[string]func(*testing.T) (url string, count func() string){
		"Redis": func(t *testing.T) (string, func() string) {
			s := testserver.Redis(t)
			url := "redis://:@" + s.Addr() + "/0?prefix=app&ttl=1h&require=fencing&client_name=a;b"
			return url, func() string { return fmt.Sprint(s.Do("DBSIZE")) }
		},
		"PostgreSQL": func(t *testing.T) (string, func() string) {
			s := testserver.Postgres(t)
			return s.URL(), func() string { return inPostgres(t, s.URL()) }
		},
		"MariaDB": func(t *testing.T) (string, func() string) {
			testwait.OnlyNightly(t, "make test has no MariaDB")
			s := testserver.MariaDB(t)
			db := testwait.Closed(sql.Open("mysql", "root@tcp("+s.Addr()+")/locker"))(t)
			return s.URL(), func() (counts string) {
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.tables").Scan(&counts))
				return counts
			}
		},
		"Redlock": func(t *testing.T) (string, func() string) {
			testwait.OnlyNightly(t, "Redis is the same with one server")
			var addrs []string
			for range 3 {
				addrs = append(addrs, testserver.Redis(t).Addr())
			}
			return "redlock://" + strings.Join(addrs, ","), func() string { return keysOf(t, addrs) }
		},
		"Redis Cluster": func(t *testing.T) (string, func() string) {
			testwait.OnlyNightly(t, "Redis is the same with one server")
			addrs := testserver.Cluster(t).Addrs()
			return "redis://" + strings.Join(addrs, ",") + "?cluster=true", func() string { return keysOf(t, addrs) }
		},
		"etcd": func(t *testing.T) (string, func() string) {
			testwait.OnlyNightly(t, "its sessions take long")
			s := testserver.Etcd(t)
			cli := testwait.Closed(clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}}))(t)
			return s.URL(), func() string {
				keys, err := cli.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCountOnly())
				require.NoError(t, err)
				leases, err := cli.Leases(t.Context())
				require.NoError(t, err)
				return fmt.Sprintln(keys.Count, len(leases.Leases))
			}
		},
		"ZooKeeper": func(t *testing.T) (string, func() string) {
			testwait.OnlyNightly(t, "its sessions take long")
			s := testserver.ZooKeeper(t, testserver.ZooKeeperReaping())
			return s.URL(), func() string {
				said, _ := s.Ask("mntr") // or it is busy
				return regexp.MustCompile(`zk_znode_count\t\d+`).FindString(said)
			}
		},
	} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			url, count := start(t)
			before := count()
			wantSame := func() {
				t.Helper()
				var now string
				defer func() { assert.Equal(t, before, now) }()
				patience.Until(t, "all is as before", func() bool { now = count(); return now == before })
			}
			r := checked(t, 0, "--run", quick, "--ttl", ttl, url)
			assert.NotZero(t, r.Count(conformance.Kept))
			assert.Empty(t, r.Left)
			if backend == "Redis" {
				assert.Equal(t, strings.Replace(url[:strings.IndexByte(url, '?')], ":@", "", 1), r.Backend)
				assert.Contains(t, r.Prefix, "app-check-")
			}
			wantSame()
			if runtime.GOOS == "windows" {
				return // no process is interrupted there
			}
			for _, args := range [][]string{{"check", "--ttl", ttl, url}, {"bench", url}} {
				cmd := exec.Command(binary, args...)
				r, w, err := os.Pipe()
				require.NoError(t, err)
				cmd.Stderr = w // of a tee that Ctrl-C has ended
				require.NoError(t, errors.Join(cmd.Start(), w.Close(), r.Close()))
				patience.Until(t, "it has begun", func() bool { return count() != before })
				require.NoError(t, cmd.Process.Signal(os.Interrupt))
				_ = cmd.Wait()
				require.Equal(t, 130, job.ExitCode(cmd.ProcessState), args[0])
				wantSame()
			}
		})
	}
}

// keysOf counts the keys of several servers.
func keysOf(t *testing.T, addrs []string) (counts string) {
	for _, addr := range addrs {
		rdb := goredis.NewClient(&goredis.Options{Addr: addr})
		counts += rdb.DBSize(t.Context()).String()
		_ = rdb.Close()
	}
	return counts
}

// A user without the right to make a table uses that of others. The report names what stays.
func TestCheck_whereNoTableMayBeMade(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	c := testwait.Closed(locker.Open(t.Context(), s.URL()))(t)
	require.NoError(t, c.Mutex("x").TryLock(t.Context()))
	inPostgres(t, s.URL(), "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app")
	before := inPostgres(t, s.URL())
	r := checked(t, 0, "--run", "^a held lock is not granted", strings.Replace(s.URL(), "postgres@", "app@", 1))
	assert.Contains(t, r.Left, "rows of the locks stay in the table")
	assert.Equal(t, before, inPostgres(t, s.URL()))
}

// A check that cannot begin, because its user may take locks and not release them, deletes what its
// first lock left.
func TestCheck_thatCannotBegin_leavesNothing(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Do("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-hdel")
	o := locked(t, "check", "redis://app:secret@"+s.Addr())
	require.NotZero(t, o.code)
	assert.Contains(t, o.stderr, `unlock "probe"`)
	assert.Equal(t, int64(0), s.Do("DBSIZE"))
}

// A bench one of whose URLs is refused drops the tables that it made for those before it.
func TestBench_thatCannotBegin_leavesNothing(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	before := inPostgres(t, s.URL())
	o := locked(t, "bench", s.URL(), "redis://127.0.0.1:1/?no_such_parameter=1")
	require.NotZero(t, o.code)
	assert.Contains(t, o.stderr, "no_such_parameter")
	assert.Equal(t, before, inPostgres(t, s.URL()))
}

// inPostgres runs statements, and then counts tables and routines.
func inPostgres(t *testing.T, url string, statements ...string) (counts string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = c.Close(t.Context()) }()
	for _, statement := range statements {
		_, err := c.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, c.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace) || ' ' ||
		(SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace)`).Scan(&counts))
	return counts
}
