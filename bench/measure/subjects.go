package main

import (
	"math"
	"time"
)

var (
	bare  = []string{"bare", "bare-autopipeline"}
	calm  = contention{hold: time.Millisecond, think: 20 * time.Millisecond, clients: 64}
	eager = contention{hold: time.Millisecond, clients: 4}
)

const (
	aboutPairs  = "A Lock, an Unlock, and both (a pair) of one goroutine that nobody competes with, in µs."
	aboutApart  = "Goroutines share a client; each locks a name of its own."
	aboutKilled = "100 wait for one name, with a TTL of 6 s. The time until one of them has the lock: after the first waiter was killed (SIGKILL) and the holder unlocks a moment later, and after the holder was killed."
)

// subjects is all that can be measured. It is filled in init, for what measures kills looks libraries up in it.
var subjects []subject

func init() {
	subjects = []subject{
		{"redis", "One Redis server", startRedis(1), redisLibraries, []part{
			{"pairs", aboutPairs, "bare", nil, pairs},
			{"apart", aboutApart, "bare-autopipeline", nil, apart(64, 512)},
			{"contended", "Many want one name, over at most 64 clients. A hold lasts 1 ms; then the waiter pauses for 20 ms. The longest wait may not have ended.", "redsync", append(bare, "locker-redigo"), contended(calm, 2, 32, 256, 1024)},
			{"handover", "The time from the call of Unlock until the Lock of one of 8 waiters returns. PING was measured at the same time.", "", append(bare, "locker-redigo"), handover},
			{"killed", aboutKilled, "", append(bare, "locker-redigo"), killed(100, 64)},
			{"idle", "50 wait behind one hold, each on a client of its own, and nothing happens.", "", append(bare, "locker-redigo"), idle(50)},
			{"held", "One client holds locks with a TTL of 30 s. Requests, server µs and client µs are of 100 locks and one renewal of each; heap bytes of one lock.", "", nil, held(map[string]int{"locker": math.MaxInt, "locker-redigo": math.MaxInt, "rueidislock": 1000}, 10, 1000, 100_000)},
			{"names", "Each of many names is locked once. Bytes: how much the server's memory grew for each, at once and two minutes later.", "", bare, names},
		}},
		{"quorum", "Five Redis servers", startRedis(5), quorumLibraries, []part{
			{"pairs", aboutPairs, "redsync-failfast", nil, pairs},
			{"minority", "Two of five nodes are stopped (SIGSTOP: connections stay, and nobody answers) or killed. Times as long: as just before.", "", nil, minority},
			{"contended", "32 want one name, over 8 clients. A hold lasts 1 ms; then the waiter pauses for 20 ms.", "redsync-failfast", bare, contended(contention{calm.hold, calm.think, 8}, 32)},
			{"apart", aboutApart, "redsync-failfast", nil, apart(64)},
		}},
		{"etcd", "etcd, one server", startEtcd, etcdLibraries, []part{
			{"pairs", aboutPairs, "etcd bare", nil, pairs},
			{"contended", "Many want one name, over at most 4 clients. A hold lasts 1 ms; then the waiter asks again at once.", "etcd concurrency.Mutex", []string{"etcd bare"}, contended(eager, 2, 32, 256)},
			{"killed", aboutKilled, "", []string{"etcd bare"}, killed(100, 4)},
		}},
		{"zookeeper", "ZooKeeper, one server", startZooKeeper, zooKeeperLibraries, []part{
			{"pairs", aboutPairs, "zookeeper bare", nil, pairs},
			{"contended", "As for etcd.", "zookeeper zk.Lock", []string{"zookeeper bare"}, contended(eager, 2, 32, 256)},
			{"killed", aboutKilled, "", []string{"zookeeper bare"}, killed(100, 4)},
		}},
		{"postgres", "PostgreSQL", startPostgres, postgresLibraries, []part{
			{"apart", aboutApart, "pg_advisory_lock", nil, apart(1, 16)},
			{"contended", "Many want one name, and ask again at once.", "pg_advisory_lock", nil, contended(contention{clients: 1}, 32, 256)},
		}},
	}
}
