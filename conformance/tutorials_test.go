package conformance_test

import (
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// tutorials are the locks that tutorials teach on Redis, by what is wrong with them, and the
// scenario that is meant for each.
var tutorials = []struct{ flaw, killer string }{
	{"SETNX without expiry", "a hold expires after its TTL"},
	{"SETNX, then EXPIRE", "a Lock cancelled at any moment leaves nothing behind"},
	{"bare DEL", "Unlock after a take-over leaves the new hold alone"},
	{"GET, then DEL", "an Unlock overtaken by the expiry leaves the new hold alone"},
	{"time as value, by the local clock", "a held lock is not granted to another process"},
	{"time as value, by the local clock", "an Unlock overtaken by the expiry leaves the new hold alone"},
	{"owner is process and goroutine", "a held lock is not granted to another process"},
	{"renewal ignores the answer", "a renewed hold that expired at a silent server stays lost"},
}

// TestTutorials has each lock judged by its scenario, and the same lock without the flaw, too: what is
// caught is the flaw.
func TestTutorials(t *testing.T) {
	testwait.OnlyNightly(t, "TestMutants has one broken Locker for each scenario")
	server := testserver.Redis(t)
	var tasks []task
	for _, lesson := range tutorials {
		for _, flaw := range []string{lesson.flaw, ""} {
			at := server
			if lesson.flaw == "renewal ignores the answer" {
				at = testserver.Redis(t) // its own, because it is stopped
			}
			tasks = append(tasks, task{flaw, find(t, lesson.killer), func() conformance.Harness { return taught(at, flaw) }})
		}
	}
	for _, d := range tried(6, tasks) {
		switch caught := d.seen != nil && !conformance.IsSkip(d.seen); {
		case caught && d.name == "":
			t.Errorf("without a flaw: %q: %v", d.scenario.Name, d.seen)
		case caught:
			t.Logf("%s\n\tcaught by %q: %v", d.name, d.scenario.Name, d.seen)
		case d.name != "":
			t.Errorf("%s: not caught by %q: %v", d.name, d.scenario.Name, d.seen)
		}
	}
}

// taught is the harness of tutorial locks on a real server.
func taught(server *testserver.RedisServer, flaw string) conformance.Harness {
	dial := func(t conformance.TB) *goredis.Client {
		rdb := goredis.NewClient(&goredis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	var processes atomic.Int64
	return conformance.Harness{
		TTL: memoryTTL,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			skew := time.Duration(processes.Add(1)%2) * time.Minute // two machines, two clocks
			if flaw != "time as value, by the local clock" {
				skew = 0
			}
			return &tutorial{rdb: dial(t), name: name, ttl: ttl, flaw: flaw, skew: skew}
		},
		Client: func(t conformance.TB, ttl time.Duration, _ bool) func(string) locker.Locker {
			rdb := dial(t)
			return func(name string) locker.Locker {
				return &tutorial{rdb: rdb, name: name, ttl: ttl, flaw: flaw, ctx: t.Context()}
			}
		},
		Faults: conformance.Faults{StopServer: func(conformance.TB) func() {
			server.Stop()
			return server.Continue
		}},
	}
}
