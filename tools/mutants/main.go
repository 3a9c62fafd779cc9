// Command mutants changes the code in one place at a time, and tells which of these changes no
// test notices.
//
//	go run -C tools ./mutants -n 60 -out /tmp/mutants.jsonl
//	go run -C tools ./mutants -against /tmp/mutants.jsonl -out /tmp/again.jsonl
//
// The sample is the same for the same -seed as long as the code is, also if functions move to other
// files: a mutant is known by its package, function and text. The first mutants of a sample are a
// sample too, so that a run may be ended at any time. A second run with the same -out goes on where
// the first ended.
//
// With -against, the mutants are those that FILE says were noticed. The test that noticed one runs
// first, if it is still there.
//
// Tests run without a mutant first, which shows how long they take. Those that fail are left out.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// target is a package of the repository, and where its tests are, those first that take least
// time.
type target struct {
	dir   string
	tests []string
}

var targets = []target{
	{".", []string{".", "internal/test/core", "memory"}},
	{"internal/redisscript", []string{"internal/redisscript", "redis"}},
	{"redlock", []string{"redlock"}},
	{"etcd", []string{"etcd"}},
	{"zookeeper", []string{"zookeeper"}},
	{"kubernetes", []string{"kubernetes"}},
	{"postgres", []string{"postgres"}},
	{"mysql", []string{"mysql"}},
	{"sqlite", []string{"sqlite"}},
	{"internal/sqllock", []string{"sqlite", "mysql"}},
}

// result is a line of the output.
type result struct {
	ID      string   `json:"id"`
	Package string   `json:"package"`
	Where   string   `json:"where"`
	Change  string   `json:"change"`
	Outcome string   `json:"outcome"`         // noticed, unnoticed, timeout, invalid
	Test    string   `json:"test,omitempty"`  // that failed; of a crash or a time-out, those that ran
	In      string   `json:"in,omitempty"`    // the folder of Test
	Flaky   []string `json:"flaky,omitempty"` // failed, and passed alone
	Seconds float64  `json:"seconds"`
}

// died reports whether tests noticed the mutant.
func (r result) died() bool { return r.Outcome == "noticed" || r.Outcome == "timeout" }

func main() {
	log.SetFlags(0)
	n := flag.Int("n", 60, "how many mutants; with -against all")
	seed := flag.Int("seed", 1, "which sample")
	jobs := flag.Int("jobs", 1, "how many at a time")
	only := flag.String("only", "", "some of the packages, with commas between them")
	out := flag.String("out", "", "file for the results, a line of JSON each (default: none)")
	against := flag.String("against", "", "results of an earlier run, whose noticed mutants run again")
	root := flag.String("root", "..", "the repository")
	flag.Parse()

	repo, err := filepath.Abs(*root)
	check(err)
	check(os.Setenv("PATH", filepath.Join(repo, ".bin")+":"+os.Getenv("PATH")))
	check(os.Setenv("LOCKER_REQUIRE_SERVERS", "1"))
	chosen := slices.DeleteFunc(slices.Clone(targets), func(t target) bool {
		return *only != "" && !slices.Contains(strings.Split(*only, ","), t.dir)
	})
	queue := sample(repo, chosen, *seed)
	before := read(*against)
	if *against != "" {
		_, err := os.Stat(*against)
		check(err)
		queue = again(queue, before, chosen)
		*n = len(queue)
	}
	done := read(*out)
	file := os.Stdout
	if *out != "" {
		file, err = os.OpenFile(*out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		check(err)
	}

	var results []result
	queue = slices.DeleteFunc(queue, func(m mutant) bool {
		r, ok := done[m.id]
		if ok {
			results = append(results, r)
		}
		return ok
	})
	counted := 0
	for _, r := range results {
		if r.Outcome != "invalid" {
			counted++
		}
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tester := tester{repo: repo}
	if counted < *n && len(queue) > 0 {
		tester.prepare(ctx, chosen)
	}
	var mu sync.Mutex
	take := func() (m mutant, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(queue) == 0 || counted >= *n || ctx.Err() != nil {
			return m, false
		}
		m, queue = queue[0], queue[1:]
		counted++
		return m, true
	}
	var workers sync.WaitGroup
	for range *jobs {
		workers.Go(func() {
			for m, ok := take(); ok; m, ok = take() {
				r := tester.try(ctx, m, before[m.id])
				if ctx.Err() != nil {
					return // what was ended here says nothing
				}
				line, err := json.Marshal(r)
				check(err)
				mu.Lock()
				if r.Outcome == "invalid" {
					counted-- // another takes its place
				}
				results = append(results, r)
				_, err = file.Write(append(line, '\n'))
				check(err)
				log.Printf("%-9s %5.0f s  %s %s: %s  %s",
					r.Outcome, r.Seconds, r.Package, r.Where, r.Change, r.Test)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	summary(results)
}

// again returns those of queue that died before, and prints those whose code has changed.
func again(queue []mutant, before map[string]result, targets []target) []mutant {
	queue = slices.DeleteFunc(queue, func(m mutant) bool { return !before[m.id].died() })
	for id, r := range before {
		chosen := slices.ContainsFunc(targets, func(t target) bool { return t.dir == r.Package })
		there := slices.ContainsFunc(queue, func(m mutant) bool { return m.id == id })
		if r.died() && chosen && !there {
			fmt.Printf("its code has changed: %s %s: %s\n", r.Package, r.Where, r.Change)
		}
	}
	return queue
}

// summary prints a table, and what was not noticed.
func summary(results []result) {
	fmt.Println("\n| package | mutants | noticed | time-out | not noticed | did not compile |")
	fmt.Println("|---|--:|--:|--:|--:|--:|")
	total := map[string]int{}
	for _, t := range targets {
		of := map[string]int{}
		for _, r := range results {
			if r.Package == t.dir {
				of[r.Outcome]++
				total[r.Outcome]++
			}
		}
		row(t.dir, of)
	}
	row("all", total)
	slices.SortFunc(results, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Where, b.Where))
	})
	for _, r := range results {
		if r.Outcome == "unnoticed" {
			fmt.Printf("not noticed: %s %s: %s\n", r.Package, r.Where, r.Change)
		}
	}
}

func row(name string, of map[string]int) {
	tried := of["noticed"] + of["timeout"] + of["unnoticed"]
	fmt.Printf("| %s | %d | %d | %d | %d | %d |\n",
		name, tried, of["noticed"], of["timeout"], of["unnoticed"], of["invalid"])
}

// read returns the results in a file by their mutant. There are none if there is no file.
func read(file string) map[string]result {
	results := map[string]result{}
	text, err := os.ReadFile(file)
	if file == "" || os.IsNotExist(err) {
		return results
	}
	check(err)
	for line := range bytes.Lines(text) {
		var r result
		check(json.Unmarshal(line, &r))
		results[r.ID] = r
	}
	return results
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
