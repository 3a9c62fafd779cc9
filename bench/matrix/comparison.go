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
var compared = []string{"redis", "redlock", "etcd", "zookeeper", "postgres"}

func (r *Run) comparisonPage() string {
	var b strings.Builder
	b.WriteString(generated)
	b.WriteString("# Redis, Redlock, etcd or ZooKeeper\n\n" +
		"How the four did in the [conformance suite](conformance.md). The [guarantees](guarantees.md) explain the words, and have how it was run and what was seen of each breach.\n\n" +
		"A lock that breaks a promise below may still be the right one. If two holders at once cost you some work done twice, " +
		"the Redis that you run anyway will do. If they cost you data, let the resource refuse a token that is smaller than one it has seen, whatever the lock, " +
		"and look for a backend that holds in the conditions that your servers will meet.\n\n")
	differ, others, same := newComparison(), newComparison(), map[string]bool{}
	for _, s := range conformance.Scenarios() {
		verdicts, cells := make([]string, len(compared)), make([]string, len(compared))
		for i, file := range compared {
			verdicts[i] = r.compare(file, s.Name)
			cells[i] = verdicts[i] + r.shares(file, s.Name)
		}
		isHeld := func(cell string) bool { return cell == held.String() }
		switch {
		case lacking(s, verdicts):
		case slices.ContainsFunc(verdicts, func(v string) bool { return v != verdicts[0] }):
			differ.add(s, cells)
		case slices.ContainsFunc(cells, func(c string) bool { return !isHeld(c) }):
			others.add(s, cells)
		default:
			same[s.Name] = true
		}
	}
	fmt.Fprintf(&b, "## Where they differ\n\n%s\n", differ.render())
	fmt.Fprintf(&b, "\n## Held by none of the four, or not in each trial\n\n%s\n", others.render())
	fmt.Fprintf(&b, "\n## Held by all four\n\n%s\n", heldTable(same))
	return b.String()
}

// lacking reports whether a scenario is of read-write locks, which not all have, and held by those that do. The last table shows it.
func lacking(s conformance.Scenario, verdicts []string) bool {
	return slices.Contains(s.Needs, "RW") && slices.Contains(verdicts, lacks.String()) &&
		!slices.ContainsFunc(verdicts, func(v string) bool { return v != lacks.String() && v != held.String() })
}

// heldTable counts the scenarios of each section, and those that are among names.
func heldTable(names map[string]bool) string {
	t := newTable("scenarios", "number", "held by all four")
	for _, topic := range topics {
		for _, s := range topic.sections {
			n, all := 0, s.scenarios()
			for _, c := range all {
				if names[c.Name] {
					n++
				}
			}
			t.AppendRow(table.Row{fmt.Sprintf("[%s](conformance/%s.md#%s)", s.title, topic.file, anchor(s.title)), len(all), n})
		}
	}
	return t.RenderMarkdown()
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
	row := table.Row{link("conformance/", s.Name), s.Promise}
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
