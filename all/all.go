// Package all registers the schemes of every backend of this module, for programs whose operators
// choose. Kubernetes, PostgreSQL, MySQL, SQLite and object storage are modules of their own.
//
//	import _ "github.com/go-locker/locker/all"
//
// Such a program compiles the client libraries of all of them. One that knows its backend imports
// that package alone.
package all

import (
	_ "github.com/go-locker/locker/etcd"      // etcd:// and etcds://
	_ "github.com/go-locker/locker/memory"    // mem://
	_ "github.com/go-locker/locker/redigo"    // redigo:// and redigos://
	_ "github.com/go-locker/locker/redis"     // redis:// and rediss://
	_ "github.com/go-locker/locker/redlock"   // redlock://
	_ "github.com/go-locker/locker/zookeeper" // zookeeper:// and zookeepers://
)
