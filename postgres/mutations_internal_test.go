package postgres

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// mutation takes something out of the driver. docs/writing-a-driver.md has the same table.
type mutation struct {
	taken    string
	scenario string // fails then
	change   func(t *testing.T, sql *statements)
	wrap     func(driver.Driver) driver.Driver
}

var mutations = []mutation{
	{
		taken: "the owner's comparison in Extend", scenario: "an Extend that arrives late leaves the new hold alone, and revives nothing",
		change: func(t *testing.T, sql *statements) {
			replace(t, &sql.extend, `owner = $2 AND NOT released`, `$2::bytea IS NOT NULL`)
		},
	}, {
		taken: "the end of the TTL in Extend's comparison", scenario: "an Extend that arrives late leaves the new hold alone, and revives nothing",
		change: func(t *testing.T, sql *statements) {
			replace(t, &sql.extend, ` AND expires_at > clock_timestamp()`, ``)
		},
	}, {
		taken: "the new end that Extend sets", scenario: "Extend keeps a hold past its TTL",
		change: func(t *testing.T, sql *statements) {
			replace(t, &sql.extend, `expires_at = clock_timestamp() + $3 *`, `expires_at = expires_at + 0 * $3 *`)
		},
	}, {
		taken: "the owner's comparison in Release", scenario: "an Unlock that arrives late leaves the new hold alone",
		change: func(t *testing.T, sql *statements) {
			replace(t, &sql.release, `released = released OR owner = $2 AND expires_at > clock_timestamp()`, `released = true`)
			replace(t, &sql.release, `WHERE key = $1 AND (version = $3 OR $2 = ANY (waiters) OR owner = $2 AND (released OR expires_at > clock_timestamp()))`,
				`WHERE key = $1 AND $2::bytea IS NOT NULL`)
			replace(t, &sql.release, `RETURNING owner = $2 AND released`, `RETURNING $3::bigint >= 0`)
		},
	}, {
		taken: "the end of the hold in Release", scenario: "the lock passes from holder to holder",
		change: func(t *testing.T, sql *statements) {
			replace(t, &sql.release, `released = released OR owner = $2 AND expires_at > clock_timestamp()`, `released = released`)
			replace(t, &sql.release, `RETURNING owner = $2 AND released`, `RETURNING owner = $2`)
		},
	}, {
		taken: "the version that was seen, in a take's comparison", scenario: "a take that arrives more than a TTL late takes nothing",
		change: func(t *testing.T, sql *statements) {
			replace(t, &sql.take, `version = $2 AND`, `$2::bigint >= 0 AND`)
			replace(t, &sql.ask, `version = $2 OR`, `$2::bigint >= 0 OR`)
		},
	}, {
		taken: "the step of the token", scenario: "tokens rise from process to process",
		change: func(t *testing.T, sql *statements) {
			replace(t, &sql.take, `token = greatest(token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)`, `token = token`)
			replace(t, &sql.ask, `THEN greatest(token + 1, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint)`, `THEN token`)
		},
	}, {
		taken: "the clock in the token", scenario: "tokens rise though the server loses its data",
		change: func(t *testing.T, sql *statements) {
			replace(t, &sql.insert, `greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, (SELECT`, `greatest(0, (SELECT`)
			replace(t, &sql.take, `greatest(token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)`, `token + 1`)
			replace(t, &sql.ask, `greatest(token + 1, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint)`, `token + 1`)
		},
	}, {
		taken: "the lease beside an error of Acquire", scenario: "a Lock cancelled at any moment leaves nothing behind",
		wrap: func(d driver.Driver) driver.Driver { return leaseless{d} },
	}, {
		taken: "ErrLost of a Release that found nothing", scenario: "a hold that was ended behind its holder's back is lost",
		wrap: func(d driver.Driver) driver.Driver { return content{d} },
	},
}

// replace alters a statement, and fails if there is nothing to alter.
func replace(t *testing.T, statement *string, old, now string) {
	t.Helper()
	require.Contains(t, *statement, old)
	*statement = strings.ReplaceAll(*statement, old, now)
}

// leaseless returns no lease beside an error.
type leaseless struct{ driver.Driver }

func (d leaseless) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := d.Driver.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// content has leases whose Release is content with anything.
type content struct{ driver.Driver }

func (d content) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := d.Driver.Acquire(ctx, req)
	if l == nil {
		return nil, err
	}
	return contentLease{l}, err
}

type contentLease struct{ driver.Lease }

func (l contentLease) Release(ctx context.Context) error {
	_ = l.Lease.Release(ctx)
	return nil
}

// What the page tells authors to take out is caught by the scenario that it names.
func TestMutations(t *testing.T) {
	testwait.OnlyNightly(t, "it judges scenarios of the suite, for the page that goes through this driver")
	page, err := os.ReadFile("../docs/writing-a-driver.md")
	require.NoError(t, err)
	for _, m := range mutations {
		t.Run(m.taken, func(t *testing.T) {
			t.Parallel()
			assert.Contains(t, string(page), "| "+m.taken+" | "+m.scenario+" |")
			s := testserver.Postgres(t)
			require.True(t, m.comesTo(t, conformance.Kept, harnessOf(s, statementsFor(defaultTable), nil)), "with nothing taken out")
			sql := statementsFor(defaultTable)
			if m.change != nil {
				m.change(t, &sql)
			}
			assert.True(t, m.comesTo(t, conformance.Broken, harnessOf(s, sql, m.wrap)))
		})
	}
}

// harnessOf is that of a driver with such statements, which wrap may alter.
func harnessOf(s *testserver.PostgresServer, sql statements, wrap func(driver.Driver) driver.Driver) conformance.Harness {
	pool := func(t conformance.TB, addr string) *pgxpool.Pool {
		p, err := pgxpool.New(t.Context(), strings.Replace(s.URL(), s.Addr(), addr, 1))
		if err != nil {
			t.Fatalf("pool: %v", err)
		}
		t.Cleanup(p.Close)
		return p
	}
	lock := func(t conformance.TB, addr, name string, ttl time.Duration) locker.Locker {
		d := driver.Driver(newDriver(pool(t, addr), sql))
		if wrap != nil {
			d = wrap(d)
		}
		c, err := locker.New(d, locker.WithTTL(ttl), locker.WithoutRenewal())
		if err != nil {
			t.Fatalf("new: %v", err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c.Mutex(name)
	}
	return conformance.Harness{
		TTL: 300 * time.Millisecond,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return lock(t, s.Addr(), name, ttl)
		},
		Faults: conformance.Faults{
			Through: func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
				return lock(t, via(s.Addr()), name, ttl)
			},
			WipeServer: func(conformance.TB) (restart func()) {
				s.Kill()
				s.Wipe()
				return s.Restart
			},
			Revoke: func(t conformance.TB, name string) {
				if _, err := pool(t, s.Addr()).Exec(t.Context(), "DELETE FROM locker_locks WHERE name = $1", []byte("locker:"+name)); err != nil {
					t.Fatalf("delete: %v", err)
				}
			},
		},
	}
}

// comesTo reports whether the scenario has that outcome, in one of three runs: a machine that is overloaded may hide what is there.
func (m mutation) comesTo(t *testing.T, want conformance.Outcome, h conformance.Harness) bool {
	t.Helper()
	all := conformance.Scenarios()
	i := slices.IndexFunc(all, func(s conformance.Scenario) bool { return s.Name == m.scenario })
	require.GreaterOrEqual(t, i, 0, "no scenario is called %q", m.scenario)
	for range 3 {
		r := conformance.Examine(t, all[i], h)
		t.Logf("%s: %s %s", m.scenario, r.Outcome, r.Seen)
		if r.Outcome == want {
			return true
		}
	}
	return false
}
