// Package all registers the schemes of every backend of this module. It is for programs whose
// operators choose the backend, by its URL. Kubernetes, PostgreSQL, MySQL, SQLite and object
// storage are modules of their own.
//
//	import _ "github.com/go-locker/locker/all"
//
// A program that imports package all compiles the client libraries of every backend of this module.
// A program that always uses one backend imports only the package of that backend.
package all

import (
	_ "github.com/go-locker/locker/etcd"      // etcd:// and etcds://
	_ "github.com/go-locker/locker/memory"    // mem://
	_ "github.com/go-locker/locker/redigo"    // redigo:// and redigos://
	_ "github.com/go-locker/locker/redis"     // redis:// and rediss://
	_ "github.com/go-locker/locker/redlock"   // redlock://
	_ "github.com/go-locker/locker/zookeeper" // zookeeper:// and zookeepers://
)
