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
	if j.Found != "" {
		return fmt.Sprintf("yes, after %.0f s%s: %s", j.After, where, link(dir, j.Found))
	}
	if !j.Whole {
		return fmt.Sprintf("undecided: not within %.0f s, and then the suite was stopped", j.Took)
	}
	switch beyond := breaks.Beyond(name); {
	case beyond != "":
		return "no" + where + ": it would take " + beyond
	case breaks.Since(name) != nil:
		return "**no**" + where + "; since then: " + link(dir, breaks.Since(name)[0])
	default:
		return "**no**" + where
	}
}

// judgedText says how many the suite finds.
func (r *Run) judgedText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The bugs of this module, and of old versions of other libraries, were put through the whole [conformance suite](conformance.md) as `make test` runs it. The suite is not told what is wrong. "+
		"A scenario counts if it fails in the whole suite, fails again when it is run alone, and passes with the fix. `make judge BREAK=redis-late-take-holds-longer` judges one again.\n\n"+
		"%s\n\n", r.figure())
	t := newTable("code", "judged", "found", "the contract covers", "found of those", "seconds until found, median", "longest")
	for _, row := range []struct {
		what string
		ways []breaks.Way
	}{
		{"of today, the fix taken back by git", []breaks.Way{breaks.Reversed}},
		{"of today, the fix taken back by hand", []breaks.Way{breaks.ByHand}},
		{"before the fix, with the suite of that commit", []breaks.Way{breaks.Before}},
	} {
		n := breaks.TallyOf(r.Judged, func(j breaks.Judgement) bool { return j.IsOwn() && slices.Contains(row.ways, j.Way) })
		t.AppendRow(tallyRow(row.what, n))
	}
	t.AppendRow(tallyRow("old versions of other libraries", breaks.TallyOf(r.Judged, func(j breaks.Judgement) bool { return !j.IsOwn() })))
	b.WriteString(t.RenderMarkdown())
	b.WriteString("\n\nIn the tables below a bold **no** means that the contract of a Locker covers the bug, and the suite did not find it. *It would take X* means that the contract or the suite would need X. *(today)* means that the code and the suite of today were judged. *(then)* means that the commit before the fix was judged, with its own suite, which had fewer scenarios. " +
		"If one commit fixed two bugs, the judged code has both. A scenario that fails in the row of one bug may then have found the other. " +
		"What the contract of a Locker does not cover, such as URLs, has tests of its own. " +
		"A scenario that was made because the suite had missed a bug is named behind *since then*, and does not count.\n")
	return b.String()
}

func tallyRow(what string, n breaks.Tally) table.Row {
	median, longest := "–", "–"
	if n.Found > 0 {
		median, longest = fmt.Sprintf("%.0f", n.Median), fmt.Sprintf("%.0f", n.Longest)
	}
	return table.Row{what, n.Judged, n.Found, n.Covered, n.FoundOfCovered, median, longest}
}

// figure is the figure of trust: how many bugs the suite finds by itself.
func (r *Run) figure() string {
	n, all := breaks.TallyOf(r.Judged, breaks.Judgement.IsOwn), 0
	for _, name := range breaks.Judged() {
		if (breaks.Judgement{Name: name}).IsOwn() {
			all++
		}
	}
	text := fmt.Sprintf("The suite finds %d of the %d bugs of this module that were judged. Only %d of the %d break the contract of a Locker, and it finds %d of these. "+
		"The fastest half of these took %.0f s, and the slowest %.0f s.", n.Found, n.Judged, n.Covered, n.Judged, n.FoundOfCovered, n.Median, n.Longest)
	others := breaks.TallyOf(r.Judged, func(j breaks.Judgement) bool { return !j.IsOwn() })
	text += fmt.Sprintf(" Each of the bugs was once in this module. With most of them the suite of that time had passed. Most need two events at the same moment: "+
		"a test inside the package can cause that, the suite cannot. We also judged %d old versions of other libraries, which the suite had never seen. Each has a bug that its authors fixed later. The suite finds %d of these bugs.",
		others.Judged, others.Found)
	if n.Judged < all {
		text += fmt.Sprintf(" %d more of this module were not judged yet, or not to the end.", all-n.Judged)
	}
	return text
}

// judgedSentence is that of docs/conformance.md.
func (r *Run) judgedSentence() string {
	return fmt.Sprintf("We put old bugs of this module back, and had the suite look for them as it looks at any lock ([judged blind](known-breaks.md#judged-blind)). %s\n", r.figure())
}

// releasesTable lists the old versions of other libraries.
func (r *Run) releasesTable() string {
	t := newTable("library", "version", "what", "fixed in", "found blind")
	for _, one := range breaks.Releases {
		version := one.Version
		if one.Changed() {
			version += ": its lock code, put into the newest version of the library"
		}
		t.AppendRow(table.Row{one.Lock, version, fmt.Sprintf("[%s](%s)", cellText(plain(one.What)), one.Source), one.Fixed, r.found(one.Name(), "conformance/")})
	}
	return t.RenderMarkdown()
}
