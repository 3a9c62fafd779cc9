// Package backends has the one list of the backends of this module. A new one is a folder and a line here; what else has to name it, such as
// package all and the table of docs/urls.md, has a test that compares it with this list.
package backends

import (
	"slices"
	"time"
)

// Backend is one package that makes a Driver.
type Backend struct {
	Package string
	Title   string   // of its column in the matrix
	Schemes []string // the plain one, and that of TLS if it has one
	Library string   // the package of its client library that programs link; "" if it has none

	Port     string        // where a URL names none; "" if its URLs name no servers
	ShortTTL time.Duration // the shortest that servers with default settings honour, on a network that is not slow
	Help     []string      // a URL and a remark, in turn, as the command line's help has them
	Example  string        // a URL that Open takes; nobody has its addresses (RFC 5737)
}

// All lists the backends in the order in which people read of them.
var All = []Backend{
	{"memory", "memory", []string{"mem"}, "", "", quick, []string{"mem://space", "this process alone, to try things out"}, "mem://example"},
	{"redis", "Redis (go-redis)", []string{"redis", "rediss"}, "github.com/redis/go-redis/v9", "6379", quick, []string{
		"redis://user:password@host:6379/0", "rediss:// for TLS",
		"redis://h1,h2,h3?master_name=mymaster", "sentinels",
		"redis://h1:6379,h2:6379?cluster=true", "Redis Cluster",
	}, "redis://192.0.2.1"},
	{"redigo", "Redis (redigo)", []string{"redigo", "redigos"}, "github.com/gomodule/redigo/redis", "6379", quick,
		[]string{"redigo://host:6379/0", "the same through another library"}, "redigo://192.0.2.1"},
	{"redlock", "Redlock", []string{"redlock"}, "", "6379", quick,
		[]string{"redlock://h1:6379,h2:6379,h3:6379", "a majority of Redis servers"}, "redlock://192.0.2.1,192.0.2.2,192.0.2.3"},
	{"etcd", "etcd", []string{"etcd", "etcds"}, "go.etcd.io/etcd/client/v3", "2379", 2 * time.Second,
		[]string{"etcd://h1:2379,h2:2379,h3:2379", "etcds:// for TLS"}, "etcd://192.0.2.1"},
	{"zookeeper", "ZooKeeper", []string{"zookeeper", "zookeepers"}, "github.com/go-zookeeper/zk", "2181", 4 * time.Second,
		[]string{"zookeeper://h1:2181,h2:2181/path", "zookeepers:// for TLS"}, "zookeeper://192.0.2.1?ttl=20s"}, // without a TTL it asks a server
}

const quick = 500 * time.Millisecond

// Of returns the backend that has a scheme.
func Of(scheme string) (b Backend, ok bool) {
	i := slices.IndexFunc(All, func(b Backend) bool { return slices.Contains(b.Schemes, scheme) })
	if i < 0 {
		return b, false
	}
	return All[i], true
}
