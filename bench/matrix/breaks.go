package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/breaks"
)

// breaksPage lists how locks have broken, and what shows it again.
func (r *Run) breaksPage() string {
	versions := map[string]string{}
	for _, l := range r.Setting.Libraries {
		versions[l.Name] = l.Version
	}
	ours, others := newTable("what", "before", "found by", "looked for by", "shown by `make show`"), newTable("library", "what", "seen in", "found by", "looked for by", "shown by `make show`")
	for _, b := range breaks.All() {
		shown := "BREAK=" + b.Name
		if version, ok := versions[b.Lock]; ok {
			if b.Since != "" {
				version = b.Since + " to " + version
			}
			others.AppendRow(table.Row{b.Lock, cellText(plain(b.What)), cmp.Or(b.In, version), b.By, looks(b), shown})
			continue
		}
		ours.AppendRow(table.Row{b.Lock + ": " + cellText(plain(b.What)), strings.TrimPrefix(b.In, "before "), b.By, looks(b), shown})
	}
	all, alone := 0, 0
	for _, b := range breaks.All() {
		if _, ok := versions[b.Lock]; ok {
			all++
			if b.By == "the suite" {
				alone++
			}
		}
	}
	reported := newTable("library", "what", "looked for by")
	for _, b := range breaks.Reported {
		reported.AppendRow(table.Row{b.Lock, cellText(plain(b.What)), looks(b)})
	}
	return fmt.Sprintf("%s# Known breaks\n\n"+
		"How locks have broken: this module's own, and those of other libraries. One command shows each of them again, for example:\n\n"+
		"    make show BREAK=redsync-stopped-node\n\n"+
		"The beginning of a name is enough. `make nightly PART=breaks` shows all, and fails if one does not show any more.\n\n"+
		"A deviation from the contract of this module is no defect of a library that promises something else.\n\n"+
		"## Of this module\n\n"+
		"Each was mended before the first release. The command checks out the commit that mended it, takes back what that changed outside of tests, "+
		"and runs the test that the commit came with: it has to fail, and to pass with the mend.\n\n%s\n\n"+
		"## Of other libraries\n\n"+
		"The command runs the library alone on a real server, in the version that [bench/go.mod](../bench/go.mod) has, or in another: "+
		"`make show BREAK=redsync-stopped-node VERSION=v4.13.0`. The oldest version is that of those that were tried. The scenarios are those of the [conformance suite](conformance.md). A number in brackets counts the others. "+
		"%d of these %d the suite finds by itself, with usual settings.\n\n%s\n\n"+
		"## Known from issues\n\n"+
		"These are not shown here; the suite looks for them.\n\n%s\n",
		generated, ours.RenderMarkdown(), alone, all, others.RenderMarkdown(), reported.RenderMarkdown())
}

// looks returns what looks for a break: up to two scenarios and tests, and how many there are
// beside.
func looks(b breaks.Break) string {
	var some []string
	for _, name := range b.Looks[:min(2, len(b.Looks))] {
		if strings.Contains(name, " ") {
			name = link("conformance/", name)
		}
		some = append(some, name)
	}
	all := strings.Join(some, "; ")
	if more := len(b.Looks) - len(some); more > 0 {
		all += fmt.Sprintf(" (%d)", more)
	}
	return all
}
