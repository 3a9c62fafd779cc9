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
	ours, others := newTable("what", "fixed in", "found by", "found blind", "looked for by", "shown by `make show`"), newTable("library", "what", "seen in", "found by", "looked for by", "shown by `make show`")
	for _, b := range breaks.All() {
		shown := "BREAK=" + b.Name
		if version, ok := versions[b.Lock]; ok {
			if b.Since != "" {
				version = b.Since + " to " + version
			}
			others.AppendRow(table.Row{b.Lock, cellText(plain(b.What)), cmp.Or(b.In, version), b.By, looks(b), shown})
			continue
		}
		ours.AppendRow(table.Row{b.Lock + ": " + cellText(plain(b.What)), strings.TrimPrefix(b.In, "before "), b.By, r.found(b.Name, "conformance/"), looks(b), shown})
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
		"This page lists bugs of locks: of this module's own, and of other libraries. For most of them there is a command that shows the bug again, for example:\n\n"+
		"    make show BREAK=redsync-stopped-node\n\n"+
		"The beginning of a name is enough. `make nightly PART=breaks` runs all these commands, and fails if a bug can no longer be shown.\n\n"+
		"Each lock is measured by the contract of this module. If a library promises something else, its deviation is no defect.\n\n"+
		"## Judged blind\n\n%s\n"+
		"## Of this module\n\n"+
		"All of these were fixed before the first release. The command checks out the commit of the fix, and runs the test of this commit twice. "+
		"Without the fix the test has to fail. With the fix it has to pass.\n\n%s\n\n"+
		"## Of other libraries\n\n"+
		"The command runs the library alone, on a real server. For a library in Go it uses the version in [bench/go.mod](../bench/go.mod), or the one that you name: "+
		"`make show BREAK=redsync-stopped-node VERSION=v4.13.0`. *Seen in* begins with the oldest version that was tried. The scenarios are those of the [conformance suite](conformance.md). "+
		"If more than two scenarios and tests look for a break, a number in brackets counts the others. With its usual settings the suite finds %d of these %d. For the others a test has to cause the event.\n\n%s\n\n"+
		"## Old versions of other libraries\n\n"+
		"Their authors have fixed these bugs. The suite of today judges the last version that has the bug, beside the first that has the fix. "+
		"Redisson is not among them: it is a library in Java, and nobody has run the suite's adapter for it.\n\n%s\n\n"+
		"## Known from issues\n\n"+
		"These bugs were reported in the issues of other libraries. No command shows them, but scenarios and tests look for them.\n\n%s\n",
		generated, r.judgedText(), ours.RenderMarkdown(), alone, all, others.RenderMarkdown(), r.releasesTable(), reported.RenderMarkdown())
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
