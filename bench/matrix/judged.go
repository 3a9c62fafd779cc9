package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/breaks"
)

// found is a cell: which scenario found a break, after how many seconds, and in which code.
func (r *Run) found(name, dir string) string {
	i := slices.IndexFunc(r.Judged, func(j breaks.Judgement) bool { return j.Name == name })
	if i < 0 {
		return "not judged yet"
	}
	j := r.Judged[i]
	if j.Failed != "" {
		return "not judged: " + cellText(plain(j.Failed))
	}
	where := ""
	switch j.Way {
	case breaks.Reversed, breaks.ByHand:
		where = " (today)"
	case breaks.Before:
		where = " (then)"
	}
	switch beyond := breaks.Beyond(name); {
	case j.Found != "":
		return fmt.Sprintf("yes, after %.0f s%s: %s", j.After, where, link(dir, j.Found))
	case beyond != "":
		return "no" + where + ": it would take " + beyond
	case breaks.Since(name) != "":
		return "**no**" + where + "; since then: " + link(dir, breaks.Since(name))
	default:
		return "**no**" + where
	}
}

// judgedText says how many the suite finds.
func (r *Run) judgedText() string {
	var b strings.Builder
	mine := breaks.TallyOf(r.Judged, breaks.Judgement.IsOwn)
	total := 0
	for _, name := range breaks.Judged() {
		if own := (breaks.Judgement{Name: name}); own.IsOwn() {
			total++
		}
	}
	fmt.Fprintf(&b, "Each of these was put through the whole [conformance suite](conformance.md) as `make test` runs it. The suite is not told what is wrong. "+
		"A scenario counts if it fails there, fails again by itself, and passes with the mend. `make judge BREAK=redis-late-take-holds-longer` judges one again.\n\n"+
		"%s\n\n", sentenceOf("this module's own bugs", mine, total))
	t := newTable("code", "judged", "found", "the contract covers", "found of those", "seconds until found, median", "longest")
	for _, row := range []struct {
		what string
		ways []breaks.Way
	}{
		{"of today, the mend taken back by git", []breaks.Way{breaks.Reversed}},
		{"of today, the mend taken back by hand", []breaks.Way{breaks.ByHand}},
		{"before the mend, with the suite of that commit", []breaks.Way{breaks.Before}},
	} {
		n := breaks.TallyOf(r.Judged, func(j breaks.Judgement) bool { return j.IsOwn() && slices.Contains(row.ways, j.Way) })
		t.AppendRow(tallyRow(row.what, n))
	}
	t.AppendRow(tallyRow("old versions of other libraries", breaks.TallyOf(r.Judged, func(j breaks.Judgement) bool { return !j.IsOwn() })))
	b.WriteString(t.RenderMarkdown())
	b.WriteString("\n\nIn the tables below *today* is the code and the suite of today, and *then* the commit before the mend, whose suite knew less. " +
		"A commit that mended two bugs is judged for each of them, and the scenario may have found the other one. " +
		"What the contract of a Locker does not cover, such as `Client.Close`, has tests of its own. " +
		"A scenario that was made because the suite had missed a bug is named behind *since then*, and does not count.\n")
	return b.String()
}

func tallyRow(what string, n breaks.Tally) table.Row {
	return table.Row{what, n.Judged, n.Found, n.Covered, n.FoundOfCovered, fmt.Sprintf("%.0f", n.Median), fmt.Sprintf("%.0f", n.Longest)}
}

// sentenceOf is the figure of trust.
func sentenceOf(what string, n breaks.Tally, total int) string {
	text := fmt.Sprintf("Of %d of %s the suite finds %d by itself; of the %d that the contract of a Locker covers, %d. "+
		"Half of them are found within %.0f seconds.", n.Judged, what, n.Found, n.Covered, n.FoundOfCovered, n.Median)
	if n.Judged < total {
		text += fmt.Sprintf(" The other %d were not judged.", total-n.Judged)
	}
	return text
}

// judgedSentence is that of docs/conformance.md.
func (r *Run) judgedSentence() string {
	n := breaks.TallyOf(r.Judged, breaks.Judgement.IsOwn)
	others := breaks.TallyOf(r.Judged, func(j breaks.Judgement) bool { return !j.IsOwn() })
	return fmt.Sprintf("Bugs that this module had were put back, and judged blind: %s Of %d old versions of other libraries, with a bug that their authors mended later, it finds %d. "+
		"[Which, and which not](known-breaks.md#judged-blind).\n", sentenceOf("them", n, n.Judged), others.Judged, others.Found)
}

// releasesTable lists the old versions of other libraries.
func (r *Run) releasesTable() string {
	t := newTable("library", "version", "what", "mended in", "found blind")
	for _, one := range breaks.Releases {
		version := one.Version
		if one.Changed() {
			version += ", its lock in the client of today"
		}
		t.AppendRow(table.Row{one.Lock, version, fmt.Sprintf("[%s](%s)", cellText(plain(one.What)), one.Source), one.Mended, r.found(one.Name(), "conformance/")})
	}
	return t.RenderMarkdown()
}
