package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/internal/test/testserver"
)

// servers are one, or some Redis servers that do not know of each other.
type servers struct {
	name  string   // with the version
	addrs []string // for clients
	redis []*testserver.RedisServer
	pids  []int

	// what the servers tell of themselves; nil: nothing
	count func(ctx context.Context, into *look) error

	host testserver.Host
}

func (s *servers) stop() { s.host.Close() }

// start returns servers that also stop when ctx ends, so that clients that do not heed it find out.
// Their name begins with a title.
func start(ctx context.Context, title, program string, with func(testing.TB, *servers) error) (*servers, error) {
	s := &servers{host: testserver.NewHost()}
	var err error
	if ended := s.host.Do(func(t testing.TB) { err = with(t, s) }); ended != nil {
		err = ended
	}
	version, unknown := testserver.Version(program)
	if err = cmp.Or(err, unknown); err != nil {
		s.stop()
		return nil, err
	}
	s.name = title + " " + version
	context.AfterFunc(ctx, s.stop)
	return s, nil
}

func startRedis(n int) func(context.Context) (*servers, error) {
	return func(ctx context.Context) (*servers, error) {
		return start(ctx, "Redis", "redis-server", func(t testing.TB, s *servers) error {
			for range n {
				s.add(testserver.Redis(t))
			}
			return nil
		})
	}
}

func (s *servers) add(server *testserver.RedisServer) {
	s.addrs, s.pids = append(s.addrs, server.Addr()), append(s.pids, server.PID())
	s.redis, s.count = append(s.redis, server), s.commands
}

func startEtcd(ctx context.Context) (*servers, error) {
	return start(ctx, "etcd", "etcd", func(t testing.TB, s *servers) error {
		one := testserver.EtcdCluster(t, 1).Leader()
		s.addrs, s.pids = []string{one.Addr()}, []int{one.PID()}
		return nil
	})
}

// tick is ZooKeeper's tickTime.
const tick = 100 * time.Millisecond

func startZooKeeper(ctx context.Context) (*servers, error) {
	return start(ctx, "ZooKeeper", "zookeeper-server", func(t testing.TB, s *servers) error {
		// Empty containers go after a minute, as is the default: tests are in a hurry.
		one := testserver.ZooKeeperEnsemble(t, 1,
			testserver.ZooKeeperConfig(fmt.Sprint("tickTime=", tick.Milliseconds())),
			testserver.ZooKeeperJVM("-Dznode.container.checkIntervalMs=60000")).Leader()
		s.addrs, s.pids = []string{one.Addr()}, []int{one.PID()}
		return nil
	})
}

// startPostgres has it write to disk. The address is its URL.
func startPostgres(ctx context.Context) (*servers, error) {
	return start(ctx, "PostgreSQL", "postgres", func(t testing.TB, s *servers) error {
		one := testserver.Postgres(t, testserver.PostgresOnDisk(),
			testserver.PostgresSettings("max_connections=1100"))
		s.addrs, s.pids = []string{one.URL()}, []int{one.PID()}
		conn, err := pgx.Connect(ctx, one.URL())
		if err != nil {
			return err
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			_ = conn.Close(ctx)
		})
		s.count = func(ctx context.Context, into *look) error { // but for this connection
			return conn.QueryRow(ctx, "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'").
				Scan(&into.connections)
		}
		_, err = conn.Exec(ctx, "CREATE TABLE names (name text PRIMARY KEY)") // the rows that are locked
		return err
	})
}

// cost is what went on for a while.
type cost struct {
	seconds, sent, run, serverUs, allocations, cpuUs float64

	connections int     // to PostgreSQL, at the end
	memory      float64 // by which the servers' processes have grown
}

// each has the columns that all parts share, for one of n.
func (c cost) each(n float64, f figures) figures {
	n = max(n, 1)
	f["requests"], f["run"], f["server µs"] = c.sent/n, c.run/n, c.serverUs/n
	f["allocations"], f["connections"], f["cpu µs"] = c.allocations/n, float64(c.connections), c.cpuUs/n
	return f
}

// look is what has gone on so far.
type look struct {
	at          time.Time
	sent        map[string]int64
	mallocs     uint64
	cpu         time.Duration
	memory      float64
	ran         map[string]commandTotals
	connections int
}

type commandTotals struct{ calls, microseconds int64 }

// during returns what went on while do ran, with what clients sent as sent has counted it.
func (s *servers) during(ctx context.Context, sent *tally, do func() error) (cost, error) {
	var before, after look
	// The servers are asked outside of what is measured.
	if err := s.ask(ctx, &before); err != nil {
		return cost{}, err
	}
	before.take(sent)
	if err := do(); err != nil {
		return cost{}, err
	}
	after.take(sent)
	err := s.ask(ctx, &after)
	return after.since(before), err
}

func (s *servers) ask(ctx context.Context, into *look) error {
	for _, pid := range s.pids {
		into.process(pid)
	}
	if s.count == nil {
		return nil
	}
	return s.count(ctx, into)
}

// process adds what Linux says of a server's process, and of its children: their processor time, in
// hundredths of a second, and the memory that is theirs alone. Other systems have no such files.
func (l *look) process(pid int) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	stat, _ := os.ReadFile(proc + "stat")
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // a name may have any characters
	for i := 11; i < 15 && i < len(fields); i++ {                             // also of children that have ended
		ticks, _ := strconv.Atoi(fields[i])
		l.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	var size, resident, shared int
	if statm, err := os.ReadFile(proc + "statm"); err == nil {
		_, _ = fmt.Sscan(string(statm), &size, &resident, &shared)
	}
	l.memory += float64((resident - shared) * os.Getpagesize())
	children, _ := os.ReadFile(fmt.Sprintf("%stask/%d/children", proc, pid))
	for child := range strings.FieldsSeq(string(children)) {
		if pid, err := strconv.Atoi(child); err == nil {
			l.process(pid)
		}
	}
}

func (l *look) take(sent *tally) {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	l.sent, l.mallocs, l.at = sent.snapshot(), mem.Mallocs, time.Now()
}

func (l *look) since(before look) cost {
	c := cost{
		seconds: l.at.Sub(before.at).Seconds(), allocations: float64(l.mallocs - before.mallocs),
		connections: l.connections, cpuUs: micros(l.cpu - before.cpu), memory: l.memory - before.memory,
	}
	sent := make(map[string]int64)
	for name, n := range l.sent {
		sent[name] = n - before.sent[name]
		c.sent += float64(sent[name])
	}
	for name, total := range l.ran {
		calls := total.calls - before.ran[name].calls
		if calls <= 0 {
			continue
		}
		c.run += float64(calls)
		// The time of a script contains that of what it runs. A command that both clients and scripts use
		// is charged by the clients' share in it.
		share := min(1, float64(sent[name])/float64(calls))
		c.serverUs += share * float64(total.microseconds-before.ran[name].microseconds)
	}
	return c
}

// commands counts the commands that all the Redis servers have run. It leaves out INFO and AUTH,
// which read the figures, and which no library sends here. A subcommand ("client|tracking") counts
// as its command, for that is the name which clients send.
func (s *servers) commands(_ context.Context, into *look) error {
	into.ran = make(map[string]commandTotals)
	for _, r := range s.redis {
		fields, err := r.Info("INFO", "commandstats")
		if err != nil {
			return err
		}
		for key, value := range fields {
			name, _, _ := strings.Cut(strings.TrimPrefix(key, "cmdstat_"), "|")
			var calls, microseconds int64
			if _, err := fmt.Sscanf(value, "calls=%d,usec=%d", &calls, &microseconds); err != nil {
				return fmt.Errorf("%s=%s: %w", key, value, err)
			}
			sum := into.ran[name]
			into.ran[name] = commandTotals{sum.calls + calls, sum.microseconds + microseconds}
		}
	}
	delete(into.ran, "info")
	delete(into.ran, "auth")
	return nil
}

// memory is what the first Redis server uses, in bytes.
func (s *servers) memory() (float64, error) {
	fields, err := s.redis[0].Info("INFO", "memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(fields["used_memory"], 64)
}
