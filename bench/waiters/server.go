package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// server is a redis-server of our own, and a connection to look at it with.
type server struct {
	addr    string
	version string
	rdb     *goredis.Client

	cmd *exec.Cmd
	dir string
}

// findServer looks on the PATH, then in .bin of this and every directory above, where make setup
// puts what it builds.
func findServer() (string, error) {
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return path, nil
	}
	if dir, wdErr := os.Getwd(); wdErr == nil {
		for ; ; dir = filepath.Dir(dir) {
			if path, err := exec.LookPath(filepath.Join(dir, ".bin", "redis-server")); err == nil {
				return path, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("%w; run make setup, or install Redis 7 or later", err)
}

// startServer starts one on a free loopback port. Whoever called it stops it.
func startServer(ctx context.Context) (*server, error) {
	path, err := findServer()
	if err != nil {
		return nil, err
	}
	// Between the choice of a port and its use somebody else may take it.
	for range 5 {
		var s *server
		if s, err = startServerOnce(ctx, path); err == nil || ctx.Err() != nil {
			return s, err
		}
	}
	return nil, err
}

func startServerOnce(ctx context.Context, path string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "waiters-")
	if err != nil {
		return nil, err
	}
	s := &server{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir}
	s.cmd = exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--dir", dir, "--save", "", "--appendonly", "no")
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.rdb = goredis.NewClient(&goredis.Options{Addr: s.addr, MaxRetries: -1})
	if err := s.awaitReady(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (s *server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		info, err := s.info(ctx, "server")
		switch {
		case err == nil && info["process_id"] != strconv.Itoa(s.cmd.Process.Pid):
			return errors.New("another server has the port")
		case err == nil:
			s.version = info["redis_version"]
			return nil
		}
		if !sleep(ctx, 5*time.Millisecond) {
			return fmt.Errorf("redis-server does not answer on %s: %w", s.addr, err)
		}
	}
}

func (s *server) stop() {
	_ = s.rdb.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// info returns the fields of one section of INFO.
func (s *server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.rdb.Info(ctx, section).Result()
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

// usage is what the server has done so far, and what clients have sent it.
type usage struct {
	at   time.Time
	sent map[string]int64         // as counted on the clients' connections
	runs map[string]commandTotals // as the server counts, with what scripts run
}

type commandTotals struct{ Calls, Microseconds int64 }

// usage leaves out INFO, by which it comes by the figures and which no library sends.
func (s *server) usage(ctx context.Context, sent *tally) (usage, error) {
	fields, err := s.info(ctx, "commandstats")
	if err != nil {
		return usage{}, err
	}
	u := usage{at: time.Now(), sent: sent.snapshot(), runs: parseCommandStats(fields)}
	delete(u.runs, "info")
	return u, nil
}

// parseCommandStats adds subcommands ("client|tracking") to their command, for that is the name which
// clients send.
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
				total.Calls += n
			case k == "usec":
				total.Microseconds += n
			}
		}
		runs[name] = total
	}
	return runs
}

// Load is what went on at the server between two looks at it.
type Load struct {
	Seconds float64 `json:"seconds"`
	// Sent are the commands that clients sent, Run all that the server counted: those, and the ones
	// that scripts ran.
	Sent      int64            `json:"sent"`
	Run       int64            `json:"run"`
	SentNames map[string]int64 `json:"sentByName"`
	RunNames  map[string]int64 `json:"runByName"`
	// Microseconds are the server's own, of the commands that clients sent: the time of a script
	// contains that of what it runs.
	Microseconds float64 `json:"serverMicroseconds"`
}

func loadBetween(before, after usage) Load {
	l := Load{
		Seconds:   after.at.Sub(before.at).Seconds(),
		SentNames: map[string]int64{},
		RunNames:  map[string]int64{},
	}
	for name, n := range after.sent {
		if n -= before.sent[name]; n > 0 {
			l.SentNames[name] = n
			l.Sent += n
		}
	}
	for name, total := range after.runs {
		calls := total.Calls - before.runs[name].Calls
		if calls <= 0 {
			continue
		}
		l.RunNames[name] = calls
		l.Run += calls
		// A command that both clients and scripts use is charged by the clients' share in it.
		share := min(1, float64(l.SentNames[name])/float64(calls))
		l.Microseconds += share * float64(total.Microseconds-before.runs[name].Microseconds)
	}
	return l
}
