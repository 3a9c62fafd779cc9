// Package ground has names on the servers of others that nobody else uses, and leaves nothing there.
package ground

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/target"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisurl"
	"github.com/go-locker/locker/internal/sqllock"
)

// Ground makes names on a deployment that nobody else uses.
type Ground struct {
	target.Deployment
	Prefix string
	table  string // of our own in PostgreSQL or MySQL, or empty
	mark   string // the end of our names, or empty if the prefix is ours alone

	mu    sync.Mutex
	names map[string]bool // that were locked
}

// New uses the prefix, or if it is empty a new one that begins with the URL's, because of access rights.
func New(url, prefix, purpose string) *Ground {
	g := &Ground{Deployment: target.Parse(url), Prefix: prefix, names: map[string]bool{}}
	own := fmt.Sprintf("-%s-%08x", purpose, rand.Uint32())
	if prefix == "" {
		g.Prefix = cmp.Or(g.Deployment.Prefix, "locker") + own
	} else {
		g.mark = own
	}
	return g
}

// OwnURL returns the deployment's URL, for locks on this ground.
func (g *Ground) OwnURL() string { return g.At(g.Hosts) }

// Open makes a Client for it.
func (g *Ground) Open(ctx context.Context) (*locker.Client, error) {
	return locker.Open(ctx, g.OwnURL(), locker.WithPrefix(g.Prefix))
}

// random matches the random part that nearly all names of the conformance suite have.
var random = regexp.MustCompile(`(?i)conformance-[0-9a-f]{16}`)

// Name returns a name that nobody else uses, and remembers it for CleanUp. It does not make an
// empty name valid.
func (g *Ground) Name(name string) string {
	if name != "" && !random.MatchString(name) {
		name += g.mark
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.names[name] = true
	return name
}

// prefixEscape escapes as package locker does.
var prefixEscape = strings.NewReplacer("%", "%25", ":", "%3A")

// CleanUp removes what the locks have left, and returns what stays, or "". After an error, also of an
// interruption, it takes no more than five seconds: the server may be silent.
func (g *Ground) CleanUp(after error) string {
	patience := 20 * time.Second
	if after != nil {
		patience = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch g.Kind() {
	case "redis", "redigo", "redlock":
		if err := g.deleteKeys(ctx); err != nil {
			return fmt.Sprintf("keys under the prefix %q stay, because they could not be deleted: keys of locks for at most their TTL and a minute, "+
				"and the key that makes tokens rise, of about 100 bytes (in a Redis Cluster one for each slot in use): %v", g.Prefix, err)
		}
	case "mysql", "postgres":
		if err := g.dropTable(ctx); err != nil {
			return fmt.Sprintf("the table %s stays, because it could not be dropped: %v", g.table, err)
		}
		if g.table == "" {
			return "rows of the locks stay in the table for an hour, because the user may not create a table for the check"
		}
	case "sqlite":
		return "rows of the locks stay for an hour, until a program that uses the file deletes them"
	case "s3":
		return "objects of the locks stay for a day, until a program that uses the bucket deletes them"
	}
	return ""
}

// deleteKeys deletes by name: a search for keys by pattern would load a server in use. Under a
// prefix of others the marks, by which tokens rise though names are forgotten, are theirs, too.
func (g *Ground) deleteKeys(ctx context.Context) error {
	servers, err := g.redisServers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, rdb := range servers {
		_, err := rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
			_, cluster := rdb.(*goredis.ClusterClient)
			for key := range g.keys(cluster) {
				p.Del(ctx, key)
			}
			return nil
		})
		errs = append(errs, err, rdb.Close())
	}
	return errors.Join(errs...)
}

// keys returns the keys of all names, which nobody else uses, and of their marks.
func (g *Ground) keys(cluster bool) map[string]bool {
	g.mu.Lock() // a Locker that hangs may still have a goroutine
	defer g.mu.Unlock()
	keys := map[string]bool{}
	for name := range g.names {
		name = prefixEscape.Replace(g.Prefix) + ":" + name
		for _, key := range script.KeysOf(name) {
			keys[key.(string)] = true
		}
		if g.mark == "" {
			keys[script.MarkKey(name, cluster)] = true
		}
	}
	return keys
}

// redisServers returns clients of the servers that have the locks: each node of a quorum is one.
func (g *Ground) redisServers(ctx context.Context) (servers []goredis.UniversalClient, err error) {
	u, all := g.URL, [][]string{g.Hosts}
	u.Scheme = "redis"
	if g.Secure() {
		u.Scheme = "rediss"
	}
	if g.Kind() == "redlock" {
		all = slices.Collect(slices.Chunk(g.Hosts, 1))
	}
	for _, u.Hosts = range all {
		u.Query = maps.Clone(g.Query) // Read takes off it
		t, err := redisurl.Read(ctx, &u, "redis", true)
		if err != nil {
			for _, s := range servers {
				_ = s.Close()
			}
			return nil, err
		}
		servers = append(servers, goredis.NewUniversalClient(&goredis.UniversalOptions{
			Addrs: t.Addrs, DB: t.DB, MasterName: t.Master, IsClusterMode: t.Cluster,
			Username: t.User, Password: t.Password,
			SentinelUsername: t.Sentinel.Username, SentinelPassword: t.Sentinel.Password,
			Dialer: t.DialTLS(5 * time.Second), ContextTimeoutEnabled: true, DialerRetries: 1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}))
	}
	return servers, nil
}

// Prepare gives the locks a table of their own in PostgreSQL and MySQL, if the user may create one:
// the rows of a check, and what deleting them leaves, are not to be in that of others. Under a
// prefix of others it is theirs, because of access rights.
func (g *Ground) Prepare(ctx context.Context) {
	schema, ok := map[string]string{"postgres": "public.", "mysql": ""}[g.Kind()]
	if !ok || g.mark != "" {
		return
	}
	given := g.Deployment
	if of, _, ok := strings.Cut(given.Query.Get("table"), "."); ok {
		schema = of + "."
	}
	g.table = fmt.Sprintf("%slocker_check_%08x", schema, rand.Uint32())
	g.Deployment = given.With("table", g.table)
	if err := g.makeTable(ctx); err != nil {
		_ = g.CleanUp(err)
		g.Deployment, g.table = given, ""
	}
}

// makeTable makes it by a lock, which needs the rights that other locks need. It is not
// interrupted: a table may be made after the one who gave up has dropped it.
func (g *Ground) makeTable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	c, err := g.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	m := c.Mutex(g.Name("table"))
	if err := m.TryLock(ctx); err != nil {
		return err
	}
	return m.Unlock(ctx)
}

// dropTable drops the table of Prepare, if there is one.
func (g *Ground) dropTable(ctx context.Context) error {
	switch {
	case g.table == "":
		return nil
	case g.Kind() == "mysql":
		return g.dropInMySQL(ctx)
	default:
		return g.dropInPostgres(ctx)
	}
}

// dropInMySQL has the driver drop its tables.
func (g *Ground) dropInMySQL(ctx context.Context) error {
	of := g.Only(func(name string) bool { return slices.Contains([]string{"table", "tls", "connect_timeout"}, name) })
	u, err := driver.ParseURL(of.At(of.Hosts))
	if err != nil {
		return err
	}
	d, err := driver.Open(ctx, u)
	if err != nil {
		return err
	}
	return errors.Join(d.(*sqllock.Driver).Drop(ctx), d.Close())
}

// dropInPostgres drops the table of Prepare, and all else that begins with its name.
func (g *Ground) dropInPostgres(ctx context.Context) error {
	of := g.Only(func(name string) bool {
		return slices.Contains([]string{"host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "connect_timeout"}, name)
	})
	of.Scheme = "postgres"
	c, err := pgx.Connect(ctx, of.At(of.Hosts))
	if err != nil {
		return errors.New("no connection to PostgreSQL") // the error may have the URL in it
	}
	defer func() { _ = c.Close(ctx) }()
	schema, table, _ := strings.Cut(g.table, ".")
	rows, _ := c.Query(ctx, `
		SELECT 'DROP TABLE IF EXISTS ' || oid::regclass || ' CASCADE' FROM pg_class
		WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND starts_with(relname, $2)
		UNION ALL SELECT 'DROP ROUTINE IF EXISTS ' || oid::regprocedure || ' CASCADE' FROM pg_proc
		WHERE pronamespace = $1::regnamespace AND starts_with(proname, $2)`, schema, table)
	drops, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, drop := range drops {
		_, dropErr := c.Exec(ctx, drop)
		err = errors.Join(err, dropErr)
	}
	return err
}
