package main

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// clients are those of a check. So that other users of the server find connections, there are at
// most so many at once: when there are, the Lockers of a trial share those that it has.
type clients struct {
	most int // of a scenario that has no processes and no proxies

	mu   sync.Mutex
	room int // of this scenario
	made int // that are open
	of   map[context.Context][]*locker.Client
	next int // of those to share
}

// faulty is how many clients of a scenario, at most, are processes of their own, or behind a proxy:
// those are never shared. One is that of Lockers which share a client.
const faulty = 10

// begin is called before each scenario.
func (c *clients) begin(s conformance.Scenario) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.room, c.of = c.most, map[context.Context][]*locker.Client{}
	if needs := strings.Join(s.Needs, " "); strings.Contains(needs, "Through") || strings.Contains(needs, "Process") {
		c.room -= faulty
	}
}

// get returns a client for a Locker of t, which open makes if there is room.
func (c *clients) get(t conformance.TB, open func() *locker.Client) *locker.Client {
	trial := t.Context()
	if client := c.share(trial); client != nil {
		return client
	}
	client := open()
	c.mu.Lock()
	c.made++
	c.of[trial] = append(c.of[trial], client)
	c.mu.Unlock()
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.made--
		delete(c.of, trial)
	})
	return client
}

// share returns one of the trial's clients if there is no room for another.
func (c *clients) share(trial context.Context) *locker.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := c.of[trial]
	if c.made < c.room || len(mine) == 0 {
		return nil
	}
	c.next++
	return mine[c.next%len(mine)]
}

// pools has, by backend, the parameter that bounds the connections of a client to a server, what it
// is for a check, and how many connections a client may have beside those.
var pools = map[string]struct {
	param        string
	most, beside int
}{
	"redis":    {"pool_size", 8, 1},
	"redigo":   {"pool_size", 8, 1},
	"redlock":  {"pool_size", 8, 1},
	"mysql":    {"pool_size", 2, 2},
	"postgres": {"pool_max_conns", 1, 2},
}

// bounded returns d with few connections for each client, and how many; 0 if nobody knows.
func (d deployment) bounded() (_ deployment, connections int) {
	switch d.kind() {
	case "etcd", "zookeeper":
		return d, 1
	}
	pool, ok := pools[d.kind()]
	if !ok {
		return d, 0
	}
	return d.with(pool.param, strconv.Itoa(pool.most)), pool.most + pool.beside
}
