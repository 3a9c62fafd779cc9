package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/thirdparty"
)

func (r *Run) librariesPage() string {
	var b strings.Builder
	b.WriteString(generated)
	b.WriteString("# Other libraries\n\n" +
		"Other libraries, through the same suite, behind an adapter as anybody would write it ([bench/thirdparty](../bench/thirdparty)). They promise " +
		"other things than this contract does, and a deviation is no defect where nobody promised. Each cause is reproduced with the library " +
		"alone, too, in a test that has no code of ours in it.\n")
	for _, l := range thirdparty.Libraries() {
		r.librarySection(&b, l)
	}
	return b.String()
}

func (r *Run) librarySection(b *strings.Builder, l thirdparty.Library) {
	seen := map[string]verdict{}
	count := map[verdict]int{}
	doubts := 0
	for _, s := range r.Results[otherLibraries] {
		if s.Test != l.Test {
			continue
		}
		seen[s.Scenario] = of(s)
		count[of(s)]++
		if doubtful(s) {
			doubts++
		}
	}
	fmt.Fprintf(b, "\n## %s\n\n%s", l.Name, l.Module)
	for _, row := range r.Setting.Libraries {
		if row.Name == l.Name {
			fmt.Fprintf(b, " %s", row.Version)
		}
	}
	fmt.Fprintf(b, "; %s.\n\nKept: %d promises%s; broken: %d; not tried: %d.\n\n", l.Settings, count[held]+count[lucky], ofThem(doubts), count[broken], count[untried]+count[unpromised])
	t := newTable("what it does otherwise", "broken for that", "reproduced by")
	for _, f := range l.Findings {
		scenarios := slices.DeleteFunc(slices.Concat(f.Scenarios, f.Sometimes), func(name string) bool { return seen[name] != broken })
		t.AppendRow(table.Row{cellText(plain(f.Cause)), orNone(scenarios), f.Repro})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}

func orNone(scenarios []string) string {
	if len(scenarios) == 0 {
		return "nothing in this run"
	}
	return strings.Join(scenarios, "; ")
}
