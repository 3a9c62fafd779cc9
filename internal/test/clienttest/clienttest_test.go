package clienttest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/go-locker/locker/all"
	"github.com/go-locker/locker/internal/backends"
	"github.com/go-locker/locker/internal/test/clienttest"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// Every backend of this module, on real servers.
func TestOperators(t *testing.T) {
	for _, b := range backends.Here() {
		t.Run(b.Package, func(t *testing.T) {
			var addrs []string
			query := ""
			switch b.Package {
			case "memory":
			case "redis":
				addrs = []string{testserver.Redis(t).Addr()}
			case "redigo":
				testwait.OnlyNightly(t, "its protocol is that of redis")
				addrs = []string{testserver.Redis(t).Addr()}
			case "redlock": // beside other packages a node of this machine may take more than a tenth of a TTL
				addrs, query = []string{testserver.Redis(t).Addr(), testserver.Redis(t).Addr(), testserver.Redis(t).Addr()}, "?node_timeout=280ms"
			case "etcd":
				addrs = []string{testserver.Etcd(t).Addr()}
			case "zookeeper":
				addrs = []string{testserver.ZooKeeper(t).Addr()}
			default:
				require.Fail(t, "no server of "+b.Package)
			}
			t.Parallel()
			clienttest.Operators(t, clienttest.Of(t, b.Schemes[0]+"://"+strings.Join(addrs, ",")+query))
		})
	}
}
