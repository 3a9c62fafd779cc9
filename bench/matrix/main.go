// Command matrix writes down what the conformance suite saw: what each backend's lock is worth, and how they compare, from
// the results of one run and from nothing else.
//
//	make matrix
//
// runs the suite over all backends with -conformance.results, a file for each backend and one for
// other libraries, and then this program. It writes docs/guarantees.json, and from that docs/matrix.html,
// which has every lock and every promise, and the table in docs/guarantees.md. It fails, having
// written all that, if a result contradicts what the backend declares.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "matrix: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("matrix", flag.ContinueOnError)
	f.SetOutput(stderr)
	results := f.String("results", "", "directory with the results of a run; empty: those in docs/guarantees.json, once more")
	root := f.String("root", "..", "the repository that is written to")
	if err := f.Parse(args); err != nil {
		return err
	}
	saved := filepath.Join(*root, "docs", "guarantees.json")
	r, err := load(*results, saved)
	if err != nil {
		return err
	}
	if *results != "" {
		if err := r.save(saved); err != nil {
			return err
		}
	}
	html, err := r.htmlPage(*root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(*root, "docs"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(*root, "docs", htmlFile), []byte(html), 0o644); err != nil {
		return err
	}
	for file, table := range r.tables() {
		if err := insert(filepath.Join(*root, file), table); err != nil {
			return err
		}
	}
	fmt.Fprintln(stdout, r.summary())
	return errors.Join(r.contradictions()...)
}

// load reads the results of a run, or those that were saved.
func load(results, saved string) (r *Run, err error) {
	if results == "" {
		r, err = open(saved)
	} else {
		r, err = collect(results)
	}
	return r, err
}

// In pages that people write a table stands between these.
const (
	tableBegins = "<!-- made by make matrix: begin -->"
	tableEnds   = "<!-- made by make matrix: end -->"
)

// insert replaces the table in a page.
func insert(file, table string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegins)
	_, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table, between %q and %q", file, tableBegins, tableEnds)
	}
	return os.WriteFile(file, []byte(before+tableBegins+"\n"+table+tableEnds+after), 0o644)
}
