package recipes_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/all"
	"github.com/go-locker/locker/conformance/recipes"
	"github.com/go-locker/locker/internal/backends"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) { os.Exit(testserver.Tests(m).Run()) }

// deployment is the servers of a backend: their addresses, and how to stop and continue them.
type deployment struct {
	addrs        []string
	query        string
	stop, resume func()
}

type server interface {
	Addr() string
	Stop()
	Continue()
}

func deployed[S server](query string, servers ...S) deployment {
	d := deployment{query: query}
	for _, s := range servers {
		d.addrs = append(d.addrs, s.Addr())
	}
	d.stop = func() {
		for _, s := range servers {
			s.Stop()
		}
	}
	d.resume = func() {
		for _, s := range servers {
			s.Continue()
		}
	}
	return d
}

func redis(t *testing.T) deployment { t.Helper(); return deployed("", testserver.Redis(t)) }

// deployments has each package of internal/backends in this module.
var deployments = map[string]func(t *testing.T) deployment{
	"memory": func(*testing.T) deployment { return deployment{} },
	"redis":  redis,
	"redigo": redis,
	"redlock": func(t *testing.T) deployment {
		t.Helper()
		// Beside other packages a node of this machine may take more than a tenth of a TTL.
		return deployed("node_timeout=280ms", testserver.Redis(t), testserver.Redis(t), testserver.Redis(t))
	},
	"etcd":      func(t *testing.T) deployment { t.Helper(); return deployed("", testserver.Etcd(t)) },
	"zookeeper": func(t *testing.T) deployment { t.Helper(); return deployed("", testserver.ZooKeeper(t)) },
}

// Every backend, on real servers.
func TestRecipes(t *testing.T) {
	for _, b := range backends.Here() {
		t.Run(b.Package, func(t *testing.T) {
			if b.Package == "redigo" {
				testwait.OnlyNightly(t, "its protocol is that of redis")
			}
			require.Contains(t, deployments, b.Package)
			d := deployments[b.Package](t)
			t.Parallel()
			url := b.Schemes[0] + "://" + strings.Join(d.addrs, ",") + "?" + d.query
			h := recipes.Harness{
				TTL: max(b.ShortTTL, 3*time.Second),
				Client: func(t testing.TB, opts ...locker.Option) *locker.Client {
					t.Helper()
					c, err := locker.Open(t.Context(), url, append(opts, locker.WithPrefix(harness.Space(t)))...)
					require.NoError(t, err)
					t.Cleanup(func() { _ = c.Close() })
					return c
				},
			}
			if d.stop != nil {
				h.StopServers = func(testing.TB) func() { d.stop(); return d.resume }
			}
			recipes.Run(t, h)
		})
	}
}
