// Package main records the runs that package stories shows, on real servers: `make stories`. With
// names of recordings it makes those anew.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/stories"
	"github.com/go-locker/locker/internal/test/testserver"
)

func main() {
	dir := filepath.Join("internal", "stories", "runs")
	for file, source := range stories.Sources() {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], file) {
			continue
		}
		fmt.Println("recording", file)
		if err := record(source, filepath.Join(dir, file+".json")); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

// record runs a scenario, and writes what it leaves into a file.
func record(s stories.Source, file string) error {
	dir, err := os.MkdirTemp("", "stories-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var names []string
	for name := range strings.SplitSeq(s.Test+"/"+s.Scenario, "/") {
		names = append(names, "^"+strings.ReplaceAll(name, " ", "_")+"$")
	}
	test := exec.Command("go", "test", "github.com/go-locker/locker/"+s.Package, "-count=1", "-run", strings.Join(names, "/"), "-conformance.record="+dir)
	test.Env = append(os.Environ(), "LOCKER_NIGHTLY=1", "LOCKER_REQUIRE_SERVERS=1")
	if out, err := test.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("the scenario has left the recordings %q; want one", found)
	}
	h, err := history.Read(found[0])
	if err != nil {
		return err
	}
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse: %w", err)
	}
	version, err := testserver.Version(s.Program)
	if err != nil {
		return err
	}
	h.Again = "LOCKER_NIGHTLY=1 " + h.Again + " -conformance.record=DIR"
	prune(h)
	r := stories.Recording{History: h, Servers: fmt.Sprintf(s.Servers, version), Commit: strings.TrimSpace(string(commit)), Date: time.Now().UTC().Format(time.DateOnly)}
	return write(r, file)
}

// prune leaves the locks for which A and B contend. The others ask whether servers answer.
func prune(h *history.History) {
	contended := map[string]int{}
	for _, c := range h.Clients {
		if c.Who == "A" || c.Who == "B" {
			contended[c.Name]++
		}
	}
	number := map[int]int{} // of the clients that stay
	var clients []history.Client
	for i, c := range h.Clients {
		if contended[c.Name] > 1 {
			number[i] = len(clients)
			clients = append(clients, c)
		}
	}
	gone := func(client int) bool { _, stays := number[client]; return !stays }
	h.Events = slices.DeleteFunc(h.Events, func(e history.Event) bool { return gone(e.Client) })
	for i := range h.Events {
		h.Events[i].Client = number[h.Events[i].Client]
	}
	h.Faults = slices.DeleteFunc(h.Faults, func(f history.Fault) bool { return f.Kind == "Process" && gone(f.Client) })
	for i := range h.Faults {
		h.Faults[i].Client = number[h.Faults[i].Client]
	}
	h.Clients = clients
}

// write writes a recording with a line for each client, fault and event.
func write(r stories.Recording, file string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for _, c := range []string{`{"c":`, `{"kind":`, `{"who":`} {
		data = bytes.ReplaceAll(data, []byte(c), []byte("\n"+c))
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
