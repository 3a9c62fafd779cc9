package main

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/netfault"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// costs is what calls of a lock cost on one backend.
type costs struct {
	// Round trips, to all servers together. Requests that are sent without waiting for a reply
	// between them are one; HTTP/2 of etcd sends one or two of its own with a call.
	Lock, Unlock int // of a free lock
	Held         int // TryLock of a lock that another client holds
	Extend       int
	HandOver     int // from Unlock to the end of another client's Lock that waits, of both clients

	Allocations int // of Lock and Unlock of a free lock
	Goroutines  int // of 300 holds
}

// What a lock costs on each backend at most. A row that grows makes every user's lock slower.
func TestCosts(t *testing.T) {
	for _, b := range []struct {
		name  string
		most  costs
		start func(t *testing.T) (url string)
	}{
		{"memory", costs{0, 0, 0, 0, 0, 6, 0}, func(*testing.T) string { return "mem://costs" }},
		{"redis", costs{1, 1, 1, 1, 2, 31, 20}, func(t *testing.T) string { return "redis://" + testserver.Redis(t).Addr() }},
		{"redigo", costs{1, 1, 1, 1, 2, 27, 20}, func(t *testing.T) string { return "redigo://" + testserver.Redis(t).Addr() }},
		{"redlock", costs{4, 3, 3, 3, 8, 150, 100}, func(t *testing.T) string {
			return "redlock://" + testserver.Redis(t).Addr() + "," + testserver.Redis(t).Addr() + "," + testserver.Redis(t).Addr()
		}},
		{"etcd", costs{2, 2, 3, 5, 6, 380, 20}, func(t *testing.T) string { return testserver.SharedEtcd(t).URL() }},
		{"zookeeper", costs{1, 1, 3, 1, 2, 100, 20}, func(t *testing.T) string { return testserver.SharedZooKeeper(t).URL() }},
		{"postgres", costs{1, 1, 1, 1, 3, 100, 20}, func(t *testing.T) string { return testserver.SharedPostgres(t).URL() }},
		{"mysql", costs{1, 1, 2, 1, 3, 165, 20}, func(t *testing.T) string {
			testwait.OnlyNightly(t, "make test has no MariaDB")
			return testserver.MariaDB(t).URL()
		}},
		{"sqlite", costs{0, 0, 0, 0, 0, 240, 20}, func(t *testing.T) string { return "sqlite://" + t.TempDir() + "/locks.db" }},
	} {
		t.Run(b.name, func(t *testing.T) {
			got := costsOf(t, b.start(t))
			t.Logf("%+v", got)
			cost, most := reflect.ValueOf(got), reflect.ValueOf(b.most)
			for i := range cost.NumField() {
				assert.LessOrEqual(t, cost.Field(i).Int(), most.Field(i).Int(), cost.Type().Field(i).Name)
			}
		})
	}
}

// costsOf measures what calls cost on the servers of a URL. Background requests, such as renewals of
// a session, are less than half a request a call.
func costsOf(t *testing.T, url string) (c costs) {
	const calls = 40
	client, trips := throughProxies(t, url)
	other, othersTrips := throughProxies(t, url)
	of := func(f func()) int {
		before := trips() + othersTrips()
		f()
		return trips() + othersTrips() - before
	}
	ctx := t.Context()
	m, w := client.Mutex("x"), other.Mutex("x")
	for _, each := range []*locker.Mutex{m, w, m} {
		require.NoError(t, each.Lock(ctx))
		require.NoError(t, each.Unlock(ctx))
	}
	var lock, unlock, held, extend, handOver int
	for range calls {
		lock += of(func() { require.NoError(t, m.Lock(ctx)) })
		held += of(func() { require.ErrorIs(t, w.TryLock(ctx), locker.ErrHeld) })
		extend += of(func() { require.NoError(t, m.Extend(ctx)) })
		waiting := testwait.Go(func() error { return w.Lock(ctx) })
		for sent := -1; sent != othersTrips(); time.Sleep(10 * time.Millisecond) { // until it waits
			sent = othersTrips()
		}
		handOver += of(func() {
			require.NoError(t, m.Unlock(ctx))
			require.NoError(t, <-waiting)
		})
		require.NoError(t, w.Unlock(ctx))
		require.NoError(t, m.Lock(ctx))
		unlock += of(func() { require.NoError(t, m.Unlock(ctx)) })
	}
	each := func(total int) int { return int(math.Round(float64(total) / calls)) }
	c = costs{Lock: each(lock), Unlock: each(unlock), Held: each(held), Extend: each(extend), HandOver: each(handOver)}
	direct := testwait.Closed(locker.Open(ctx, url, locker.WithTTL(10*time.Second), locker.WithoutRenewal()))(t)
	m, c.Allocations = direct.Mutex("x"), math.MaxInt
	for range 20 {
		c.Allocations = min(c.Allocations, int(testing.AllocsPerRun(20, func() {
			if m.Lock(ctx) != nil || m.Unlock(ctx) != nil {
				t.Error("not granted")
			}
		})))
	}
	before := runtime.NumGoroutine()
	for i := range 300 {
		require.NoError(t, direct.Mutex(fmt.Sprint("hold ", i)).Lock(ctx))
	}
	c.Goroutines = max(runtime.NumGoroutine()-before, 0)
	return c
}

// throughProxies returns a client that reaches each server of a URL through a proxy, and how many
// round trips it has made.
func throughProxies(t *testing.T, url string) (c *locker.Client, trips func() int) {
	t.Helper()
	var proxies []*netfault.Proxy
	url = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllStringFunc(url, func(server string) string {
		p, err := netfault.Start("127.0.0.1:0", server)
		require.NoError(t, err)
		t.Cleanup(p.Close)
		proxies = append(proxies, p)
		return p.Addr()
	})
	c = testwait.Closed(locker.Open(t.Context(), url, locker.WithTTL(10*time.Second), locker.WithoutRenewal()))(t)
	return c, func() (all int) {
		for _, p := range proxies {
			all += p.Requests()
		}
		return all
	}
}
