// Command mutants changes the code in one place at a time, and tells which of these changes no test notices.
//
//	go run -C tools ./mutants -n 60 -out /tmp/mutants.jsonl
//	go run -C tools ./mutants -against /tmp/mutants.jsonl -out /tmp/again.jsonl
//
// The sample is the same for the same -seed as long as the code is, also if functions move to other files: a mutant is known by its
// package, function and text. The first mutants of a sample are a sample too, so that a run may be ended at any time. A second
// run with the same -out goes on where the first ended.
//
// With -against, the mutants are those that FILE says were noticed. The test that noticed one runs first, if it is still there.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// target is a package of the repository, and where its tests are, those first that take least time.
type target struct {
	dir    string
	module string // the folder of its go.mod
	tests  []string
}

var targets = []target{
	{".", ".", []string{".", "internal/test/core", "memory", "conformance/recipes"}},
	{"internal/redisscript", ".", []string{"internal/redisscript", "redis"}},
	{"redlock", ".", []string{"redlock"}},
	{"etcd", ".", []string{"etcd"}},
	{"zookeeper", ".", []string{"zookeeper"}},
	{"postgres", "postgres", []string{"postgres"}},
}

// result is a line of the output.
type result struct {
	ID      string  `json:"id"`
	Package string  `json:"package"`
	Where   string  `json:"where"`
	Change  string  `json:"change"`
	Outcome string  `json:"outcome"` // noticed, unnoticed, timeout, invalid
	Test    string  `json:"test,omitempty"`
	In      string  `json:"in,omitempty"` // the package of Test
	Seconds float64 `json:"seconds"`
}

func main() {
	log.SetFlags(0)
	n := flag.Int("n", 60, "how many mutants")
	seed := flag.Int("seed", 1, "which sample")
	jobs := flag.Int("jobs", 1, "how many at a time")
	out := flag.String("out", "", "file for the results, a line of JSON each (default: none)")
	against := flag.String("against", "", "results of an earlier run, whose noticed mutants run again")
	root := flag.String("root", "..", "the repository")
	flag.Parse()

	repo, err := filepath.Abs(*root)
	check(err)
	check(os.Setenv("PATH", filepath.Join(repo, ".bin")+":"+os.Getenv("PATH")))
	check(os.Setenv("LOCKER_REQUIRE_SERVERS", "1"))
	queue := sample(repo, *seed)
	before := read(*against)
	if *against != "" {
		queue = slices.DeleteFunc(queue, func(m mutant) bool { return before[m.id].Outcome != "noticed" })
	}
	done := read(*out)
	results := slices.Collect(mapsValues(done))
	var file *os.File
	if *out != "" {
		file, err = os.OpenFile(*out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		check(err)
	}

	var mu sync.Mutex
	counted, next := 0, 0
	for _, r := range results {
		if r.Outcome != "invalid" {
			counted++
		}
	}
	take := func() (m mutant, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		for ; next < len(queue) && counted < *n; next++ {
			if _, ok := done[queue[next].id]; !ok {
				next++
				counted++
				return queue[next-1], true
			}
		}
		return m, false
	}
	var workers sync.WaitGroup
	for range *jobs {
		workers.Go(func() {
			for m, ok := take(); ok; m, ok = take() {
				r := try(repo, m, before[m.id])
				mu.Lock()
				if r.Outcome == "invalid" {
					counted-- // another takes its place
				}
				results = append(results, r)
				line, _ := json.Marshal(r)
				if file != nil {
					_, err := file.Write(append(line, '\n'))
					check(err)
				}
				fmt.Printf("%-9s %5.0f s  %s %s: %s  %s\n", r.Outcome, r.Seconds, r.Package, r.Where, r.Change, r.Test)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	summary(results)
}

// summary prints a table, and what was not noticed.
func summary(results []result) {
	fmt.Println("\n| package | mutants | noticed | time-out | not noticed |\n|---|--:|--:|--:|--:|")
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
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.Package+a.Where, b.Package+b.Where) })
	for _, r := range results {
		if r.Outcome == "unnoticed" {
			fmt.Printf("not noticed: %s %s: %s\n", r.Package, r.Where, r.Change)
		}
	}
}

func row(name string, of map[string]int) {
	fmt.Printf("| %s | %d | %d | %d | %d |\n",
		name, of["noticed"]+of["timeout"]+of["unnoticed"], of["noticed"], of["timeout"], of["unnoticed"])
}

// read returns the results in a file by their mutant.
func read(file string) map[string]result {
	results := map[string]result{}
	text, err := os.ReadFile(file)
	if err != nil {
		return results
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		var r result
		check(json.Unmarshal(s.Bytes(), &r))
		results[r.ID] = r
	}
	return results
}

func mapsValues(m map[string]result) func(yield func(result) bool) {
	return func(yield func(result) bool) {
		for _, r := range m {
			if !yield(r) {
				return
			}
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// short returns a text in one line, cut.
func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 70 {
		s = s[:67] + "…"
	}
	return s
}

// seconds returns how long ago that was.
func seconds(since time.Time) float64 { return float64(time.Since(since).Milliseconds()) / 1000 }
