package testserver

import "time"

// RedisClock gives the server a wall clock that ShiftClock can shift. That is for tests on Linux, with a C
// compiler, $CC or cc: elsewhere they are skipped.
func RedisClock() RedisOption {
	return func(o *redisOptions) { o.clock = true }
}

// ZooKeeperClock is RedisClock for the servers of ZooKeeper and ZooKeeperEnsemble. An etcd server cannot have one:
// it asks the kernel for the time, and no library.
func ZooKeeperClock() ZooKeeperOption {
	return func(o *zooKeeperOptions) { o.clock = true }
}

// ShiftClock moves the wall clock of a server by d, at once. The server must have been started with a clock of its own. Redis
// expires keys and answers TIME by it. The sum of all shifts lasts through a Restart; the server's other clocks do not change.
func (p *process) ShiftClock(d time.Duration) {
	p.t.Helper()
	if p.clockFile == "" {
		p.t.Fatalf("testserver: %s was started without a clock of its own", p.name)
	}
	p.check(addToClock(p.clockFile, d))
}
