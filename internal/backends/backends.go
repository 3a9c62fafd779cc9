// Package backends has the one list of the backends of this repository. A new one is a folder and an entry here; what else has to name it, such as
// package all and the table of docs/urls.md, has a test that compares it with this list.
package backends

import (
	"path"
	"slices"
	"time"
)

// Backend is one package that makes a Driver.
type Backend struct {
	Package string
	Title   string   // of its column in the matrix
	Schemes []string // the plain one, and that of TLS if it has one
	Library string   // the package of its client library that programs link; "" if it has none
	Module  string   // the folder of its module; "" for that of the root, whose backends package all imports

	Port     string        // where a URL names none; "" if its URLs name no servers
	ShortTTL time.Duration // the shortest that servers with default settings honour, on a network that is not slow
	Help     []string      // a URL and a remark, in turn, as the command line's help has them
	Example  string        // a URL that Open takes; nobody has its addresses (RFC 5737)
}

// All lists the backends in the order in which people read of them.
var All = []Backend{
	{
		Package: "memory", Title: "memory", Schemes: []string{"mem"}, ShortTTL: quick, Example: "mem://example",
		Help: []string{"mem://space", "this process alone, to try things out"},
	},
	{
		Package: "redis", Title: "Redis (go-redis)", Schemes: []string{"redis", "rediss"}, Library: "github.com/redis/go-redis/v9",
		Port: "6379", ShortTTL: quick, Example: "redis://192.0.2.1",
		Help: []string{
			"redis://user:password@host:6379/0", "rediss:// for TLS",
			"redis://h1,h2,h3?master_name=mymaster", "sentinels",
			"redis://h1:6379,h2:6379?cluster=true", "Redis Cluster",
		},
	},
	{
		Package: "redigo", Title: "Redis (redigo)", Schemes: []string{"redigo", "redigos"}, Library: "github.com/gomodule/redigo/redis",
		Port: "6379", ShortTTL: quick, Example: "redigo://192.0.2.1",
		Help: []string{"redigo://host:6379/0", "the same through another library"},
	},
	{
		Package: "redlock", Title: "Redlock", Schemes: []string{"redlock"},
		Port: "6379", ShortTTL: quick, Example: "redlock://192.0.2.1,192.0.2.2,192.0.2.3",
		Help: []string{"redlock://h1:6379,h2:6379,h3:6379", "a majority of Redis servers"},
	},
	{
		Package: "etcd", Title: "etcd", Schemes: []string{"etcd", "etcds"}, Library: "go.etcd.io/etcd/client/v3",
		Port: "2379", ShortTTL: 2 * time.Second, Example: "etcd://192.0.2.1",
		Help: []string{"etcd://h1:2379,h2:2379,h3:2379", "etcds:// for TLS"},
	},
	{
		Package: "zookeeper", Title: "ZooKeeper", Schemes: []string{"zookeeper", "zookeepers"}, Library: "github.com/go-zookeeper/zk",
		Port: "2181", ShortTTL: 4 * time.Second, Example: "zookeeper://192.0.2.1?ttl=20s", // without a TTL it asks a server
		Help: []string{"zookeeper://h1:2181,h2:2181/path", "zookeepers:// for TLS"},
	},
	{
		Package: "kubernetes", Title: "Kubernetes", Schemes: []string{"kubernetes"}, Library: "k8s.io/client-go/rest", Module: "kubernetes",
		ShortTTL: 2 * time.Second, Example: "kubernetes://192.0.2.1?namespace=locks",
		Help: []string{"kubernetes://?context=prod&namespace=jobs", "Leases, by a kubeconfig or in a pod"},
	},
	{
		Package: "postgres", Title: "PostgreSQL", Schemes: []string{"postgres", "postgresql"}, Library: "github.com/jackc/pgx/v5", Module: "sql",
		Port: "5432", ShortTTL: time.Second, Example: "postgres://192.0.2.1/app",
		Help: []string{"postgres://user:password@host:5432/database", "sslmode=verify-full for TLS"},
	},
	{
		Package: "s3", Title: "S3", Schemes: []string{"s3"}, Library: "github.com/aws/aws-sdk-go-v2/service/s3", Module: "s3",
		ShortTTL: 3 * time.Second, Example: "s3://bucket/folder?region=eu-central-1",
		Help: []string{"s3://bucket/folder?region=eu-central-1", "Amazon S3", "s3://bucket?endpoint=https://host", "a store with its protocol"},
	},
	{
		Package: "mysql", Title: "MySQL, MariaDB", Schemes: []string{"mysql", "mariadb"}, Library: "github.com/go-sql-driver/mysql", Module: "sql",
		Port: "3306", ShortTTL: time.Second, Example: "mysql://192.0.2.1/app",
		Help: []string{"mysql://user:password@host:3306/database", "tls=true for TLS; mariadb:// is the same"},
	},
	{
		Package: "sqlite", Title: "SQLite", Schemes: []string{"sqlite"}, Library: "modernc.org/sqlite", Module: "sql",
		ShortTTL: quick, Example: "sqlite:///var/lib/app/locks.db",
		Help: []string{"sqlite:///var/lib/app/locks.db", "a file, for processes of one machine"},
	},
}

const quick = 500 * time.Millisecond

// Folder returns where the package is, from the root of the repository.
func (b Backend) Folder() string {
	if b.Module == b.Package {
		return b.Package
	}
	return path.Join(b.Module, b.Package)
}

// Here lists those of the main module.
func Here() []Backend {
	return slices.DeleteFunc(slices.Clone(All), func(b Backend) bool { return b.Module != "" })
}

// Of returns the backend that has a scheme.
func Of(scheme string) (b Backend, ok bool) {
	i := slices.IndexFunc(All, func(b Backend) bool { return slices.Contains(b.Schemes, scheme) })
	if i < 0 {
		return b, false
	}
	return All[i], true
}
