package redisserver

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/go-locker/locker/bench/internal/wire"
)

// Usage is what servers have done so far, and what clients have sent it.
type Usage struct {
	at   time.Time
	sent map[string]int64         // as counted on the clients' connections
	runs map[string]commandTotals // as the servers count, with what scripts run
}

type commandTotals struct{ Calls, Microseconds int64 }

// Usage is of all the servers together. It leaves out INFO, by which it comes by the figures and which no
// library sends.
func (all Servers) Usage(ctx context.Context, sent *wire.Tally) (Usage, error) {
	u := Usage{runs: make(map[string]commandTotals)}
	for _, s := range all {
		fields, err := s.info(ctx, "commandstats")
		if err != nil {
			return Usage{}, err
		}
		for name, total := range parseCommandStats(fields) {
			sum := u.runs[name]
			u.runs[name] = commandTotals{sum.Calls + total.Calls, sum.Microseconds + total.Microseconds}
		}
	}
	u.at, u.sent = time.Now(), sent.Snapshot()
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

// Load is what went on at servers between two looks at them.
type Load struct {
	Seconds float64 `json:"seconds"`
	// Sent are the commands that clients sent, Run all that the servers counted: those, and the ones
	// that scripts ran.
	Sent      int64            `json:"sent"`
	Run       int64            `json:"run"`
	SentNames map[string]int64 `json:"sentByName"`
	RunNames  map[string]int64 `json:"runByName"`
	// Microseconds are the servers' own, of the commands that clients sent: the time of a script
	// contains that of what it runs.
	Microseconds float64 `json:"serverMicroseconds"`
}

// LoadBetween is the difference of two looks.
func LoadBetween(before, after Usage) Load {
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

// Add is what went on in both.
func (l Load) Add(other Load) Load {
	sum := Load{
		Seconds:      l.Seconds + other.Seconds,
		Sent:         l.Sent + other.Sent,
		Run:          l.Run + other.Run,
		SentNames:    make(map[string]int64),
		RunNames:     make(map[string]int64),
		Microseconds: l.Microseconds + other.Microseconds,
	}
	for _, one := range []Load{l, other} {
		for name, n := range one.SentNames {
			sum.SentNames[name] += n
		}
		for name, n := range one.RunNames {
			sum.RunNames[name] += n
		}
	}
	return sum
}

// Memory is what the servers use, in bytes.
func (all Servers) Memory(ctx context.Context) (bytes int64, err error) {
	for _, s := range all {
		fields, err := s.info(ctx, "memory")
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
