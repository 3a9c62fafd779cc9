package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/test/testserver"
)

// servers are one cluster, or some Redis servers that do not know of each other.
type servers struct {
	name  string         // with the version
	addrs []string       // for clients
	redis []*redisServer // of Redis alone

	// what the servers tell of themselves; nil: nothing
	count func(ctx context.Context, into *look) error

	mu      sync.Mutex // guards what follows
	host    testserver.Host
	stopped bool
}

type redisServer struct {
	*testserver.RedisServer

	client *goredis.Client
}

func (s *servers) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.host.Close()
	for _, r := range s.redis {
		_ = r.client.Close()
	}
}

// do does something to servers, or starts them, unless they have been stopped for good.
func (s *servers) do(what func(testing.TB)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("the servers have been stopped")
	}
	return s.host.Do(what)
}

// start returns servers that also stop when ctx ends, so that clients that do not heed it find out.
func start(ctx context.Context, with func(testing.TB, *servers) error) (*servers, error) {
	s := &servers{}
	var err error
	if ended := s.do(func(t testing.TB) { err = with(t, s) }); ended != nil {
		err = ended
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	context.AfterFunc(ctx, s.stop)
	return s, nil
}

func startRedis(n int) func(context.Context) (*servers, error) {
	return func(ctx context.Context) (*servers, error) {
		return start(ctx, func(t testing.TB, s *servers) error {
			for range n {
				server := testserver.Redis(t)
				client := goredis.NewClient(&goredis.Options{
					Addr: server.Addr(), MaxRetries: -1,
					ContextTimeoutEnabled: true,
				})
				s.addrs = append(s.addrs, server.Addr())
				s.redis = append(s.redis, &redisServer{server, client})
			}
			s.count = s.commands
			info, err := s.redis[0].info(ctx, "server")
			s.name = "Redis " + info["redis_version"]
			return err
		})
	}
}

func startEtcd(ctx context.Context) (*servers, error) {
	return start(ctx, func(t testing.TB, s *servers) error {
		s.addrs = testserver.EtcdCluster(t, 1).Addrs()
		resp, err := http.Get("http://" + s.addrs[0] + "/version")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		var version struct{ Etcdserver string }
		err = json.NewDecoder(resp.Body).Decode(&version)
		s.name = "etcd " + version.Etcdserver
		return err
	})
}

// tick is ZooKeeper's tickTime.
const tick = 100 * time.Millisecond

func startZooKeeper(ctx context.Context) (*servers, error) {
	return start(ctx, func(t testing.TB, s *servers) error {
		// Empty containers go after a minute, as is the default: tests are in a hurry.
		one := testserver.ZooKeeperEnsemble(t, 1,
			testserver.ZooKeeperConfig(fmt.Sprint("tickTime=", tick.Milliseconds())),
			testserver.ZooKeeperJVM("-Dznode.container.checkIntervalMs=60000")).Leader()
		s.addrs = []string{one.Addr()}
		answer, err := one.Ask("srvr")
		version, _, _ := strings.Cut(strings.TrimPrefix(answer, "Zookeeper version: "), "-")
		s.name = "ZooKeeper " + version
		return err
	})
}

// startPostgres has it write to disk. The address is its URL.
func startPostgres(ctx context.Context) (*servers, error) {
	return start(ctx, func(t testing.TB, s *servers) error {
		url := testserver.Postgres(t, testserver.PostgresOnDisk()).URL()
		s.addrs = []string{url}
		conn, err := pgx.Connect(ctx, url)
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
		version, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
		s.name = "PostgreSQL " + version
		_, err = conn.Exec(ctx, "CREATE TABLE names (name text PRIMARY KEY)") // the rows that are locked
		return err
	})
}

// cost is what went on for a while.
type cost struct {
	seconds, sent, run, serverUs, allocations, clientUs float64

	connections int // to PostgreSQL, at the end
}

// each has the columns that all parts share, for one of n.
func (c cost) each(n float64, f figures) figures {
	n = max(n, 1)
	f["requests"], f["run"], f["server µs"] = c.sent/n, c.run/n, c.serverUs/n
	f["allocations"], f["client µs"] = c.allocations/n, c.clientUs/n
	f["connections"] = float64(c.connections)
	return f
}

func (c cost) plus(o cost) cost {
	return cost{
		c.seconds + o.seconds, c.sent + o.sent, c.run + o.run, c.serverUs + o.serverUs,
		c.allocations + o.allocations, c.clientUs + o.clientUs, max(c.connections, o.connections),
	}
}

// look is what has gone on so far.
type look struct {
	at          time.Time
	sent        map[string]int64
	mallocs     uint64
	client      time.Duration
	ran         map[string]commandTotals
	connections int
}

type commandTotals struct{ calls, microseconds int64 }

// keepAlive is what etcd's clients send every so often, as ZooKeeper's send pings.
const keepAlive = "leasekeepalive"

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
	if s.count == nil {
		return nil
	}
	return s.count(ctx, into)
}

func (l *look) take(sent *tally) {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	l.sent, l.mallocs, l.client, l.at = sent.snapshot(), mem.Mallocs, processorTime(), time.Now()
}

func (l *look) since(before look) cost {
	c := cost{
		seconds: l.at.Sub(before.at).Seconds(), allocations: float64(l.mallocs - before.mallocs),
		clientUs: micros(l.client - before.client), connections: l.connections,
	}
	sent := make(map[string]int64)
	for name, n := range l.sent {
		if sent[name] = n - before.sent[name]; name != keepAlive {
			c.sent += float64(sent[name])
		}
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

// commands counts those that all the Redis servers have run. It leaves out INFO, by which it comes
// by the figures and which no library sends.
func (s *servers) commands(ctx context.Context, into *look) error {
	into.ran = make(map[string]commandTotals)
	for _, r := range s.redis {
		fields, err := r.info(ctx, "commandstats")
		if err != nil {
			return err
		}
		for name, total := range parseCommandStats(fields) {
			sum := into.ran[name]
			into.ran[name] = commandTotals{sum.calls + total.calls, sum.microseconds + total.microseconds}
		}
	}
	delete(into.ran, "info")
	return nil
}

// parseCommandStats adds subcommands ("client|tracking") to their command, for that is the name
// which clients send.
func parseCommandStats(fields map[string]string) map[string]commandTotals {
	runs := make(map[string]commandTotals, len(fields))
	for key, value := range fields {
		name, isStat := strings.CutPrefix(key, "cmdstat_")
		if !isStat {
			continue
		}
		name, _, _ = strings.Cut(name, "|")
		total := runs[name]
		for pair := range strings.SplitSeq(value, ",") {
			k, v, _ := strings.Cut(pair, "=")
			n, err := strconv.ParseInt(v, 10, 64)
			switch {
			case err != nil:
			case k == "calls":
				total.calls += n
			case k == "usec":
				total.microseconds += n
			}
		}
		runs[name] = total
	}
	return runs
}

// memory is what the first Redis server uses, in bytes.
func (s *servers) memory(ctx context.Context) (float64, error) {
	fields, err := s.redis[0].info(ctx, "memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(fields["used_memory"], 64)
}

// info returns the fields of one section of INFO.
func (s *redisServer) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.client.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields, nil
}

// awaitAnswer waits until the client, whose connections may be broken, is answered.
func (s *redisServer) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := s.client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		if !sleep(ctx, 5*time.Millisecond) {
			return fmt.Errorf("%s does not answer: %w", s.Addr(), err)
		}
	}
}
