package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/backends"
)

// compared are the backends between which a person chooses: memory is for one process, and redigo
// has the protocol of redis.
var compared = slices.DeleteFunc(slices.Clone(backends.All), func(b backends.Backend) bool { return b.Package == "memory" || b.Package == "redigo" })

func (r *Run) comparisonPage() string {
	var b strings.Builder
	b.WriteString(generated)
	b.WriteString("# Backends side by side\n\n" +
		"This page shows where the backends differ in the [conformance suite](conformance.md). [Guarantees](guarantees.md) explains the words, and says how the suite was run. " +
		"Each backend has a page there, which shows how a promise was broken.\n\n" +
		"A lock that breaks a promise may still be right for you. If two holders at once only waste work, use the server that you have. " +
		"If two holders could damage data, the resource has to refuse a token that is smaller than one it has seen. This holds for every backend. " +
		"Also choose a backend that keeps its promises under the conditions that your servers will meet.\n\n" +
		"*Held* means that nothing broke the promise in this run, not that the backend promises it. *Held, by luck* means that the promise is known to be broken, but was not seen broken in this run. *Not tried* means that the suite cannot run the scenario on that backend, mostly because it cannot cause the fault. *Lacks* means that the backend has no [read-write locks](readers-writers.md).\n\n")
	differ, others, same := newComparison(), newComparison(), map[string]bool{}
	for _, s := range conformance.Scenarios() {
		verdicts, cells := make([]string, len(compared)), make([]string, len(compared))
		for i, backend := range compared {
			verdicts[i] = r.compare(backend.Package, s.Name)
			cells[i] = verdicts[i] + r.shares(backend.Package, s.Name)
		}
		switch verdicts, shown := tried(verdicts), tried(cells); {
		case len(verdicts) == 0:
		case slices.ContainsFunc(verdicts, func(v string) bool { return v != verdicts[0] }):
			differ.add(s, cells)
		case slices.ContainsFunc(shown, func(c string) bool { return c != held.String() }):
			others.add(s, cells)
		default:
			same[s.Name] = true
		}
	}
	fmt.Fprintf(&b, "## Where they differ\n\n%s\n", differ.render())
	fmt.Fprintf(&b, "\n## Broken on all backends, or held in some trials only\n\n%s\n", others.render())
	fmt.Fprintf(&b, "\n## How many scenarios held on every backend where they were tried\n\nIf a backend does not promise what a scenario tests, the scenario does not count as held. For shares, only the backends that have read-write locks are asked.\n\n%s\n", heldTable(same))
	return b.String()
}

// tried leaves out the verdicts of backends that lack what a scenario asks for, or where the suite
// cannot try it.
func tried(verdicts []string) []string {
	return slices.DeleteFunc(slices.Clone(verdicts), func(v string) bool { return v == lacks.String() || v == untried.String() })
}

// heldTable counts the scenarios of each section, and those that are among names.
func heldTable(names map[string]bool) string {
	t := newTable("scenarios", "number", "held wherever tried")
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
	for _, b := range compared {
		columns = append(columns, strings.TrimSuffix(b.Title, " (go-redis)"))
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
			text += " (" + p + ")"
		}
	}
	return text
}
