package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/backends"
)

// compared are the backends between which a person chooses.
var compared = []string{"redis", "redlock", "etcd", "zookeeper"}

func (r *Run) comparisonPage() string {
	var b strings.Builder
	b.WriteString(generated)
	b.WriteString("# Redis, Redlock, etcd or ZooKeeper\n\n" +
		"Where the four differ comes first. A lock that breaks a promise below may still be the right one: if two holders at once cost you some work done twice, " +
		"the Redis that you run anyway will do; if they cost you data, let the resource refuse a token that is smaller than one it has seen, whatever the lock, " +
		"and look for a backend that holds in those conditions that your servers will meet.\n\n")
	differ, alike := newComparison(), newComparison()
	for _, s := range conformance.Scenarios() {
		cells := make([]string, len(compared))
		for i, file := range compared {
			cells[i] = r.compare(file, s.Name)
		}
		t := alike
		if slices.ContainsFunc(cells, func(c string) bool { return c != cells[0] }) {
			t = differ
		}
		for i, file := range compared {
			cells[i] += r.shares(file, s.Name)
		}
		t.add(s, cells)
	}
	fmt.Fprintf(&b, "## Where they differ\n\n%s\n", differ.render())
	fmt.Fprintf(&b, "\n## Where they do not\n\n%s\n", alike.render())
	b.WriteString("\nWhat was seen of each breach: [guarantees](guarantees.md). What the scenarios do: [conformance](conformance.md).\n")
	return b.String()
}

// comparison is a table with a row for each scenario.
type comparison struct{ table.Writer }

func newComparison() comparison {
	columns := []string{"scenario", "promise"}
	for _, file := range compared {
		i := slices.IndexFunc(backends.All, func(b backends.Backend) bool { return b.Package == file })
		columns = append(columns, strings.TrimSuffix(backends.All[i].Title, " (go-redis)"))
	}
	return comparison{newTable(columns...)}
}

func (c comparison) add(s conformance.Scenario, cells []string) {
	row := table.Row{s.Name, s.Promise}
	for _, text := range cells {
		row = append(row, text)
	}
	c.AppendRow(row)
}

func (c comparison) render() string {
	if c.Length() == 0 {
		return "Nothing."
	}
	return c.RenderMarkdown()
}

// scenario returns what a backend's topologies made of a scenario.
func (r *Run) scenario(file, scenario string) []conformance.Result {
	return slices.DeleteFunc(slices.Clone(r.Results[file]), func(s conformance.Result) bool { return s.Scenario != scenario })
}

// compare is the verdict on a scenario, over all topologies, and those in which it is broken, if it is not in all.
func (r *Run) compare(file, scenario string) string {
	var tried, bad []conformance.Result
	all := r.scenario(file, scenario)
	for _, s := range all {
		if v := of(s); v >= held {
			tried = append(tried, s)
			if v == broken {
				bad = append(bad, s)
			}
		}
	}
	if len(bad) > 0 && len(bad) < len(tried) {
		return fmt.Sprintf("%v (%s)", broken, strings.Join(topologies(bad), ", "))
	}
	return worst(all).String()
}

// shares says where a promise that was held was not kept in each trial, and in how many it was.
func (r *Run) shares(file, scenario string) (text string) {
	all := r.scenario(file, scenario)
	if worst(all) == broken {
		return ""
	}
	for _, s := range slices.DeleteFunc(all, func(s conformance.Result) bool { return !doubtful(s) }) {
		text += share(s)
		if p := topology(s.Test); p != "" {
			text += " on " + p
		}
	}
	return text
}
