package testserver

import "time"

// RedisClock gives the server a wall clock that ShiftClock can shift. That is for tests on Linux, with a C
// compiler, $CC or cc: elsewhere they are skipped.
func RedisClock() RedisOption {
	return func(o *redisOptions) { o.clock = true }
}

// ShiftClock has the wall clock of a server with RedisClock jump by d, at once. By it the server expires keys and
// answers TIME. What it has jumped in all lasts through a Restart; its other clocks go on as they were.
func (s *RedisServer) ShiftClock(d time.Duration) {
	s.t.Helper()
	if s.clockFile == "" {
		s.t.Fatalf("testserver: %s was started without RedisClock", s.name)
	}
	if err := addToClock(s.clockFile, d); err != nil {
		s.t.Fatalf("testserver: %s: clock: %v", s.name, err)
	}
}
