package servers

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/go-locker/locker/bench/internal/self"
	"github.com/go-locker/locker/bench/internal/stats"
	"github.com/go-locker/locker/bench/internal/wire"
)

// Load is what went on for a while.
type Load struct {
	Seconds float64 `json:"seconds"`

	// Sent are the commands, calls or packets that clients sent, but for those that keep sessions
	// alive.
	Sent      int64            `json:"sent"`
	SentNames map[string]int64 `json:"sentByName"`
	Traffic   wire.Traffic     `json:"traffic"`
	Client    self.Use         `json:"client"` // of this process

	// Run are the commands that Redis servers counted: those that clients sent, and the ones that
	// scripts ran. Microseconds are the servers' own, of the commands that clients sent: the time
	// of a script contains that of what it runs.
	Run          int64            `json:"run,omitempty"`
	RunNames     map[string]int64 `json:"runByName,omitempty"`
	Microseconds float64          `json:"serverMicroseconds,omitempty"`

	Connections int `json:"connections,omitempty"` // to PostgreSQL, at the end
}

// keepAlive is what etcd's clients send every so often, as ZooKeeper's send pings.
const keepAlive = "stream leasekeepalive"

// look is what has gone on so far.
type look struct {
	at          time.Time
	sent        map[string]int64
	traffic     wire.Traffic
	client      self.Use
	ran         map[string]commandTotals
	connections int
}

type commandTotals struct{ Calls, Microseconds int64 }

// During returns what went on while do ran, with what clients sent as sent has counted it.
func (s *Servers) During(ctx context.Context, sent *wire.Tally, do func() error) (Load, error) {
	var before, after look
	// The servers are asked outside of what is measured.
	if err := s.ask(ctx, &before); err != nil {
		return Load{}, err
	}
	before.take(sent)
	if err := do(); err != nil {
		return Load{}, err
	}
	after.take(sent)
	err := s.ask(ctx, &after)
	return after.since(before), err
}

func (s *Servers) ask(ctx context.Context, into *look) error {
	if s.count == nil {
		return nil
	}
	return s.count(ctx, into)
}

func (l *look) take(sent *wire.Tally) {
	l.sent, l.traffic, l.client, l.at = sent.Snapshot(), sent.Traffic(), self.Now(), time.Now()
}

func (l *look) since(before look) Load {
	load := Load{
		Seconds: l.at.Sub(before.at).Seconds(), SentNames: map[string]int64{}, RunNames: map[string]int64{},
		Traffic: l.traffic.Sub(before.traffic), Client: l.client.Sub(before.client), Connections: l.connections,
	}
	for name, n := range l.sent {
		if n -= before.sent[name]; n > 0 {
			load.SentNames[name] = n
			if name != keepAlive {
				load.Sent += n
			}
		}
	}
	for name, total := range l.ran {
		calls := total.Calls - before.ran[name].Calls
		if calls <= 0 {
			continue
		}
		load.RunNames[name] = calls
		load.Run += calls
		// A command that both clients and scripts use is charged by the clients' share in it.
		share := min(1, float64(load.SentNames[name])/float64(calls))
		load.Microseconds += share * float64(total.Microseconds-before.ran[name].Microseconds)
	}
	return load
}

// Add is what went on in both.
func (l Load) Add(other Load) Load {
	return Load{
		Seconds: l.Seconds + other.Seconds, Connections: max(l.Connections, other.Connections),
		Sent: l.Sent + other.Sent, SentNames: sum(l.SentNames, other.SentNames),
		Traffic: l.Traffic.Add(other.Traffic), Client: l.Client.Add(other.Client),
		Run: l.Run + other.Run, RunNames: sum(l.RunNames, other.RunNames), Microseconds: l.Microseconds + other.Microseconds,
	}
}

func sum(a, b map[string]int64) map[string]int64 {
	both := make(map[string]int64)
	maps.Copy(both, a)
	for name, n := range b {
		both[name] += n
	}
	return both
}

// Requests returns how many were sent.
func (l *Load) Requests() float64 { return float64(l.Sent) }

// Ran returns how many commands the servers have run.
func (l *Load) Ran() float64 { return float64(l.Run) }

// ServerUs returns the microseconds of the servers' processors.
func (l *Load) ServerUs() float64 { return l.Microseconds }

// RoundTrips returns how many there were.
func (l *Load) RoundTrips() float64 { return float64(l.Traffic.RoundTrips) }

// Bytes returns how many went both ways.
func (l *Load) Bytes() float64 { return float64(l.Traffic.BytesSent + l.Traffic.BytesReceived) }

// Allocations returns how many the client made.
func (l *Load) Allocations() float64 { return float64(l.Client.Allocations) }

// Allocated returns the bytes of these.
func (l *Load) Allocated() float64 { return float64(l.Client.Bytes) }

// Goroutines returns how many the client started.
func (l *Load) Goroutines() float64 { return float64(l.Client.Goroutines) }

// ClientUs returns the microseconds of the client's processor.
func (l *Load) ClientUs() float64 { return stats.Microseconds(l.Client.Processor) }

// commands counts those that all the Redis servers have run. It leaves out INFO, by which it comes
// by the figures and which no library sends.
func (s *Servers) commands(ctx context.Context, into *look) error {
	into.ran = make(map[string]commandTotals)
	for _, r := range s.Redis {
		fields, err := r.info(ctx, "commandstats")
		if err != nil {
			return err
		}
		for name, total := range parseCommandStats(fields) {
			sum := into.ran[name]
			into.ran[name] = commandTotals{sum.Calls + total.Calls, sum.Microseconds + total.Microseconds}
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
				total.Calls += n
			case k == "usec":
				total.Microseconds += n
			}
		}
		runs[name] = total
	}
	return runs
}

// Memory is what Redis servers use, in bytes.
func (s *Servers) Memory(ctx context.Context) (bytes int64, err error) {
	for _, r := range s.Redis {
		fields, err := r.info(ctx, "memory")
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(fields["used_memory"], 10, 64)
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	return bytes, nil
}
