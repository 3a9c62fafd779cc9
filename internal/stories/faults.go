package stories

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker/internal/history"
)

// faultWords say what a fault of the servers is, on those of a Source's package.
type faultWords struct {
	prepared string // what comes before the first step of the processes
	began    string
	over     string
	because  string // why another gets the lock, after the fault
}

// words are by the kind of a fault and the package.
var words = map[string]map[string]faultWords{
	"MoveClock": {
		"redis":     {over: "Redis ends a hold when that clock says so.", because: ": for Redis, %s's hold is over"},
		"zookeeper": {over: "ZooKeeper does not ask that clock when a hold ends."},
	},
	"FailOver": {
		"redis": {
			prepared: "From now on the replica receives nothing. Replication is asynchronous: the primary does not wait for it.",
			began:    "The primary is killed.",
			over:     "Sentinel has made the replica the primary.",
			because:  ": the new primary has never heard of %s's hold",
		},
		"etcd": {
			prepared: "One of the three servers is killed. The other two are a majority, and go on.",
			began:    "The leader is killed, too, and the first server starts again. It has missed the hold.",
			over:     "Two servers are a majority. The one that knows the hold has to be their leader.",
		},
		"redlock": {
			prepared: "One of the three nodes is killed. The other two are a majority, and go on.",
			began:    "A second node is killed. It loses its data.",
			over:     "Both nodes are back. Neither knows the hold, and two nodes are a majority.",
			because:  ": two of three nodes do not know %s's hold",
		},
	},
	"KillServer": {
		"redlock": {
			began: "All three nodes are killed.",
			over:  "All three nodes are back. They had written the hold to disk before they granted it.",
		},
	},
}

// befalls adds the moments of a fault.
func (t *teller) befalls(f history.Fault, add func(int64, func())) {
	w := words[f.Kind][t.source.Package]
	switch f.Kind {
	case "Process":
		if i := slices.Index(t.clients, f.Client); i != nobody {
			add(f.From, func() { t.stops(i) })
			add(f.To, func() { t.wakes(i) })
		}
	case "MoveClock":
		add(f.To, func() { t.jumps(f, w) })
	case "FailOver":
		add(f.Set, func() { t.step(servers, markFault, "%s", w.prepared) })
		add(f.Undone, func() { t.fails(f, w) })
		add(f.To, func() { t.back(w) })
	default:
		add(f.From, func() { t.fails(f, w) })
		add(f.To, func() { t.back(w) })
	}
}

func (t *teller) stops(i int) {
	p := &t.processes[i]
	p.stop = t.now
	t.set(i, paused, i, "is stopped, with the token %s", t.token(p.token))
	t.step(i, markFault, "%s is stopped (SIGSTOP), as by a long garbage collection. It does not notice, and cannot renew its hold.", t.who(i))
}

func (t *teller) wakes(i int) {
	p := &t.processes[i]
	if t.owner == i {
		t.set(i, holds, i, "holds the lock, token %s", t.token(p.token))
	} else {
		t.set(i, stale, i, "believes that it holds, token %s", t.token(p.token))
	}
	t.step(i, "", "%s goes on, after %s, where it was stopped: it is about to write.", t.who(i), lasts(t.now-p.stop))
}

func (t *teller) jumps(f history.Fault, w faultWords) {
	t.fault = f.Kind
	by, _ := time.ParseDuration(strings.TrimPrefix(f.What, "clock moved by "))
	if w.because != "" {
		t.set(servers, free, nobody, "the lock is free, by that clock")
	}
	t.step(servers, markFault, "The server's wall clock is set forward by %s. %s", lasts(int64(by)), w.over)
}

func (t *teller) fails(f history.Fault, w faultWords) {
	t.fault = f.Kind
	t.set(servers, down, nobody, "no server that may grant the lock")
	t.step(servers, markFault, "%s", w.began)
}

func (t *teller) back(w faultWords) {
	switch {
	case t.owner == nobody:
		t.set(servers, free, nobody, "the lock is free")
	case w.because != "":
		t.set(servers, free, nobody, "no hold is known")
	default:
		t.set(servers, given, t.owner, "%s has the lock, token %s", t.who(t.owner), t.token(t.processes[t.owner].token))
	}
	t.step(servers, "", "%s", w.over)
}

// because says why the hold of a client keeps nobody out.
func (t *teller) because(client int) string {
	if w := words[t.fault][t.source.Package]; w.because != "" {
		return fmt.Sprintf(w.because, t.who(client))
	}
	return ""
}
