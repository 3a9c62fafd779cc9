package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/backends"
)

// guarantees are the rows of the table, with what they mean.
var guarantees = []locker.Guarantee{
	locker.Exclusive, locker.Failover, locker.Fencing, locker.FencingDurable, locker.Ordered, locker.Woken,
}

var meaning = map[locker.Guarantee]string{
	locker.Exclusive:      "one holder at a time",
	locker.Failover:       "one holder, also through the loss of a server",
	locker.Fencing:        "tokens rise",
	locker.FencingDurable: "tokens rise through lost data",
	locker.Ordered:        "waiters are served in order",
	locker.Woken:          "waiters are woken",
}

const generated = "<!-- Made by `make matrix` from docs/guarantees.json. Not to be edited. -->\n\n"

// pages are the texts of the files in docs.
func (r *Run) pages() map[string]string {
	return map[string]string{
		"guarantees.md":      r.guaranteesPage(),
		"comparison.md":      r.comparisonPage(),
		"other-libraries.md": r.librariesPage(),
	}
}

// tables are those in pages that people write.
func (r *Run) tables() map[string]string {
	return map[string]string{"README.md": r.table("docs/"), "docs/conformance.md": scenarioTable() + breakTable()}
}

// scenarioTable is what the scenarios promise, and where that comes from.
func scenarioTable() string {
	sources, t := new(list), newTable("scenario", "promise", "needs", "from")
	for _, s := range conformance.Scenarios() {
		name := fmt.Sprintf("<a id=%q></a>%s", anchor(s.Name), s.Name)
		if !s.Deterministic {
			name += " (*)"
		}
		var from []string
		for _, source := range s.Sources {
			from = append(from, fmt.Sprintf("[%d]", sources.place(source)))
		}
		t.AppendRow(table.Row{name, s.Promise, strings.Join(s.Needs, ", "), strings.Join(from, " ")})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", t.RenderMarkdown())
	for i, source := range *sources {
		fmt.Fprintf(&b, "%d. %s\n", i+1, source)
	}
	return b.String()
}

// list is one in which everything stands once.
type list []string

// place is where s stands, from 1.
func (l *list) place(s string) int {
	i := slices.Index(*l, s)
	if i < 0 {
		i = len(*l)
		*l = append(*l, s)
	}
	return i + 1
}

// servers are the versions of the servers that the tests start.
func servers() string {
	var versions []string
	for _, server := range []string{"redis-server", "valkey-server", "etcd", "zookeeper-server"} {
		out, err := exec.Command(server, "--version").Output()
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if err == nil && first != "" {
			versions = append(versions, serverVersion(first))
		}
	}
	return strings.Join(versions, ", ")
}

// serverVersion makes "Redis 7.0.15" of "Redis server v=7.0.15 sha=…" and "etcd 3.6.16" of "etcd Version: 3.6.16".
func serverVersion(says string) string {
	words := strings.Fields(says)
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, "v="); ok {
			return words[0] + " " + v
		}
	}
	return strings.ReplaceAll(says, " Version:", "")
}

func newTable(columns ...string) table.Writer {
	t := table.NewWriter()
	header := make(table.Row, len(columns))
	for i, c := range columns {
		header[i] = c
	}
	t.AppendHeader(header)
	t.Style().Format.Header = text.FormatDefault
	return t
}

// table is the one of the README. Its links lead to the pages in dir.
func (r *Run) table(dir string) string {
	columns := []string{""}
	for _, b := range backends.All {
		columns = append(columns, fmt.Sprintf("[%s](%sguarantees.md#%s)", b.Title, dir, anchor(b.Title)))
	}
	t := newTable(columns...)
	for _, g := range guarantees {
		row := table.Row{meaning[g]}
		for _, b := range backends.All {
			row = append(row, r.cell(b, g))
		}
		t.AppendRow(row)
	}
	return t.RenderMarkdown() + "\n"
}

// cell is held or broken, and under which condition.
func (r *Run) cell(b backends.Backend, g locker.Guarantee) string {
	v, exceptions := untried, []string(nil)
	for _, f := range r.findings(b.Package, g) {
		w := worst(f.results)
		if w == broken && f.condition != "" {
			exceptions = append(exceptions, f.condition)
			continue
		}
		v = max(v, w)
	}
	switch {
	case len(exceptions) == 0:
		return v.String()
	case v == held, v == lucky:
		return "held, but **broken** when: " + strings.Join(exceptions, "; ")
	default:
		return "**broken** when: " + strings.Join(exceptions, "; ")
	}
}

func anchor(title string) string {
	kept := strings.Map(func(c rune) rune {
		switch {
		case c == ' ', c == '-':
			return '-'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_':
			return c
		default:
			return -1
		}
	}, strings.ToLower(title))
	return kept
}

func (r *Run) guaranteesPage() string {
	var b strings.Builder
	b.WriteString(generated)
	b.WriteString("# What each backend's lock is worth\n\n")
	b.WriteString("Nobody's word: each cell is what the [conformance suite](conformance.md) saw on real servers, in one run. *Held*: every scenario that " +
		"could show the promise broken was run, and none did. *Broken*: one did, and below stands which. *By luck*: what is known to be broken was not seen this time. *Not promised*: the backend says of itself that " +
		"it does not do this. *Not tried*: no scenario of it can be run there.\n\n")
	b.WriteString(r.table(""))
	fmt.Fprintf(&b, "\nThe run was on %s, %s, %s, %d processors, on %s: %s.\n\n", r.Setting.Server, r.Setting.Go, r.Setting.OS, r.Setting.Processors,
		r.Setting.At.Format("2006-01-02"), r.summary())
	b.WriteString("[Scenario by scenario](comparison.md) · [other libraries](other-libraries.md) · [what the scenarios promise](conformance.md)\n")
	for _, backend := range backends.All {
		r.backendSection(&b, backend)
	}
	return b.String()
}

func (r *Run) backendSection(b *strings.Builder, backend backends.Backend) {
	fmt.Fprintf(b, "\n## %s\n\n", backend.Title)
	if places := topologies(r.Results[backend.Package]); len(places) > 1 {
		fmt.Fprintf(b, "On: %s.\n\n", strings.Join(places, ", "))
	}
	t := newTable("promise", "the package declares", "when", "seen", "scenarios")
	for _, g := range guarantees {
		declared := "nothing"
		if p := r.promise(backend.Package, g); p != nil {
			declared = p.String()
		}
		for _, f := range r.findings(backend.Package, g) {
			t.AppendRow(table.Row{meaning[g], cellText(declared), orAlways(f.condition), worst(f.results), scenariosOf(f.results)})
		}
	}
	b.WriteString(t.RenderMarkdown() + "\n")
	r.breaches(b, backend)
}

func orAlways(condition string) string {
	if condition == "" {
		return "nothing is amiss"
	}
	return condition
}

// scenariosOf names the scenarios that show the verdict.
func scenariosOf(results []conformance.Result) string {
	v := worst(results)
	var names []string
	for _, s := range results {
		if name := s.Scenario + share(s); of(s) == v && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, "; ")
}

// breaches lists everything that was seen broken, or is not tried, of what the contract says.
func (r *Run) breaches(b *strings.Builder, backend backends.Backend) {
	var lines, doubts, reasons []string
	missing, count := map[string][]string{}, 0
	for _, s := range r.Results[backend.Package] {
		place := ""
		if p := topology(s.Test); p != "" {
			place = " (" + p + ")"
		}
		switch of(s) {
		case broken:
			lines = append(lines, fmt.Sprintf("- *%s*%s. %s Seen: %s", s.Scenario, place, sentence(s.Why), plain(s.Seen)))
		case held:
			if doubtful(s) {
				doubts = append(doubts, fmt.Sprintf("- *%s*%s%s. Seen: %s", s.Scenario, place, share(s), plain(s.Seen)))
			}
		case untried:
			reason := plain(s.Seen) + place
			if missing[reason] == nil {
				reasons = append(reasons, reason)
			}
			missing[reason] = append(missing[reason], "*"+s.Scenario+"*")
			count++
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "\nBroken:\n\n%s\n", strings.Join(lines, "\n"))
	}
	if len(doubts) > 0 {
		fmt.Fprintf(b, "\nHeld, but not in each trial:\n\n%s\n", strings.Join(doubts, "\n"))
	}
	if count > 0 {
		fmt.Fprintf(b, "\n<details><summary>Not tried: %d</summary>\n\n", count)
		for _, reason := range reasons {
			fmt.Fprintf(b, "- %s: %s\n", reason, strings.Join(missing[reason], ", "))
		}
		b.WriteString("\n</details>\n")
	}
}

func sentence(s string) string {
	if s == "" {
		return "Nobody expected that."
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}

// plain is text that Markdown leaves alone.
func plain(s string) string {
	return strings.NewReplacer("<", "&lt;", "*", "\\*", "_", "\\_").Replace(strings.TrimSpace(s))
}

func cellText(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

func topologies(results []conformance.Result) []string {
	var all []string
	for _, s := range results {
		if p := topology(s.Test); p != "" && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return all
}
