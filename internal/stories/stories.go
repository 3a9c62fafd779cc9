// Package stories tells what a lock can and cannot do, by recorded runs of the conformance suite
// over real servers. Nothing on its page is drawn by hand: each step comes from a call, a fault or a
// write that a run has recorded.
//
// `make playground` writes the page to dist/stories.html. `make stories` records the runs anew.
package stories

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker/internal/history"
)

//go:embed runs/*.json
var files embed.FS

// Story is something that can happen to a lock, told by two runs.
type Story struct {
	ID, Title, About string
	Runs             [2]Run
}

// Run is what is shown of a recording.
type Run struct {
	Title  string
	File   string // of Sources
	Fenced bool   // of a recording with several locks: the one whose resource checks tokens
}

// Stories returns those of the page.
func Stories() []Story {
	return []Story{{
		ID: "pause", Title: "A pause",
		About: "A process holds a lock, and stops for longer than its TTL: a garbage collection, a busy machine, a laptop that is closed. " +
			"Then it goes on, and writes. No lock can stop it. A resource that checks tokens can.",
		Runs: [2]Run{
			{Title: "The resource checks nothing: an update is lost", File: "pause"},
			{Title: "The resource checks tokens: the late write is refused", File: "pause", Fenced: true},
		},
	}, {
		ID: "clock", Title: "A clock that jumps",
		About: "Somebody sets the wall clock of the server forward, past the end of a hold.",
		Runs: [2]Run{
			{Title: "Redis ends holds by its wall clock: two hold", File: "clock-redis"},
			{Title: "ZooKeeper does not: the hold goes on", File: "clock-zookeeper"},
		},
	}, {
		ID: "failover", Title: "A failover",
		About: "The server that has granted the lock is killed, and another takes its place: one that has missed the grant.",
		Runs: [2]Run{
			{Title: "Redis with an asynchronous replica: two hold", File: "failover-redis"},
			{Title: "etcd: the hold goes on", File: "failover-etcd"},
		},
	}, {
		ID: "forgets", Title: "A Redlock node that forgets",
		About: "Redlock holds a lock while a majority of its nodes know it. What if one of them restarts?",
		Runs: [2]Run{
			{Title: "A node comes back without its data: two hold", File: "redlock-forgets"},
			{Title: "All nodes are killed, and come back with their data: the hold goes on", File: "redlock-remembers"},
		},
	}}
}

// Source is where a recording comes from: a scenario of the suite, on some servers.
type Source struct {
	Package, Test, Scenario string
	Servers                 string // in words, with %s for the version
	Lane                    string // the servers, in a word or two
	Program                 string // that tells the version
}

// Sources returns those of all recordings, by the names of their files.
func Sources() map[string]Source {
	const (
		jumps = "a hold lasts though the server's clock jumps forward"
		least = "a hold lasts though the server that lags most takes over"
	)
	return map[string]Source{
		"pause":             {"redis", "TestConformance/one server", "a late write with the token of a lost hold is refused", "one server, Redis %s", "Redis", "redis-server"},
		"clock-redis":       {"redis", "TestConformance/one server", jumps, "one server, Redis %s", "Redis", "redis-server"},
		"clock-zookeeper":   {"zookeeper", "TestConformance/one server", jumps, "one server, ZooKeeper %s", "ZooKeeper", "zookeeper-server"},
		"failover-redis":    {"redis", "TestConformance/Sentinel", least, "a primary, a replica and Sentinel, Redis %s", "Redis primary", "redis-server"},
		"failover-etcd":     {"etcd", "TestConformance/three servers", least, "three servers, etcd %s", "etcd, three servers", "etcd"},
		"redlock-forgets":   {"redlock", "TestConformance", least, "three nodes, Redis %s", "Redlock, three nodes", "redis-server"},
		"redlock-remembers": {"redlock", "TestConformance", "a hold lasts though the server restarts with its data", "three nodes that write to disk before they answer, Redis %s", "Redlock, three nodes", "redis-server"},
	}
}

// Recording is the file of a run: a history, and where and when it was made.
type Recording struct {
	*history.History

	Servers string `json:"servers"`
	Commit  string `json:"commit"`
	Date    string `json:"date"`
}

// Read reads the recording in a file of runs/.
func Read(file string) (Recording, error) {
	data, err := files.ReadFile("runs/" + file + ".json")
	if err != nil {
		return Recording{}, err
	}
	return Parse(data)
}

// Parse reads a recording.
func Parse(data []byte) (r Recording, err error) {
	if err := json.Unmarshal(data, &r); err != nil {
		return Recording{}, err
	}
	r.History, err = history.Parse(data)
	return r, err
}

//go:embed page.html
var pageHTML string

var page = template.Must(template.New("stories").Parse(pageHTML))

// Write writes the page. It needs nothing else.
func Write(w io.Writer) error { return page.Execute(w, Stories()) }

// Told returns what is to be shown of r.
func (r Run) Told() (View, error) {
	rec, err := Read(r.File)
	if err != nil {
		return View{}, err
	}
	return r.View(rec)
}

// Last is the number of the last step.
func (v View) Last() int { return len(v.Steps) - 1 }

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

// addFault adds the moments of a fault.
func (t *teller) addFault(f history.Fault, add func(int64, func())) {
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
