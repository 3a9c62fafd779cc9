package main

import (
	"context"
	"slices"
	"strings"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/servers"
)

// system is one kind of cluster and what locks there. The libraries' names begin with its own.
type system struct {
	name      string
	start     func(ctx context.Context, n int) (*servers.Servers, error)
	libraries contend.Libraries
	floor     string // what the time of pairs is compared with, and is no lock
	peer      string // what contention is compared with
}

var systems = []system{
	{"etcd", servers.Etcd, etcdLibraries, "etcd bare", "etcd concurrency.Mutex"},
	{"zookeeper", servers.ZooKeeper, zooKeeperLibraries, "zookeeper bare", "zookeeper zk.Lock"},
}

func libraries() contend.Libraries {
	var all contend.Libraries
	for _, s := range systems {
		all = append(all, s.libraries...)
	}
	return all
}

// of returns those libraries of a system that are to be measured.
func (o *options) of(s system) contend.Libraries {
	return slices.DeleteFunc(slices.Clone(o.Libraries), func(l contend.Library) bool {
		return !strings.HasPrefix(l.Name, s.name+" ")
	})
}

// locks leaves out what is no lock.
func (s system) locks() contend.Libraries {
	return slices.DeleteFunc(slices.Clone(s.libraries), func(l contend.Library) bool {
		return strings.HasPrefix(l.Name, s.floor)
	})
}
