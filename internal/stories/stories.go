// Package stories tells what a lock can and cannot do, by recorded runs of the conformance suite
// over real servers. Nothing on its page is drawn by hand: each step comes from a call, a fault or a
// write that a run has recorded. What a fault does to the servers of a backend is told in faults.go.
//
// `make playground` writes the page to dist/stories.html. `make stories` records the runs anew.
package stories

import (
	"embed"
	"encoding/json"

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
