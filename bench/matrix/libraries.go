package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/thirdparty"
)

// libraryFile returns the name of a library's page. Variants of a library, "redsync" and "redsync, three nodes", share one.
func libraryFile(name string) string {
	name, _, _ = strings.Cut(name, ",")
	return strings.NewReplacer(".", "-", " (", "-", "(1)", "", ")", "").Replace(strings.ToLower(name))
}

// libraryFiles returns all of them.
func libraryFiles() []string {
	var files []string
	for _, l := range thirdparty.All() {
		if file := libraryFile(l.Name); !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}

func (r *Run) librariesPage() string {
	t := newTable("library", "version", "kept", "broken", "lacks", "not tried")
	for _, l := range thirdparty.All() {
		seen := r.seenOf(l)
		t.AppendRow(table.Row{
			fmt.Sprintf("[%s](other-libraries/%s.md)", l.Name, libraryFile(l.Name)), r.version(l),
			fmt.Sprintf("%d%s", seen.count[held]+seen.count[lucky], ofThem(seen.doubts)), seen.count[broken], seen.count[lacks], seen.count[untried] + seen.count[unpromised],
		})
	}
	return generated + "# Other libraries\n\n" +
		"This page has the results of other libraries, in Go and in [other languages](judge-any-language.md), in the suite of this module. Each library has an adapter, as a user of the library would write it " +
		"([bench/thirdparty](../bench/thirdparty)). A deviation from the contract of this module is a defect of a library only if the library promises the same. *Lacks* counts " +
		"promises about features that a library does not have, such as fencing tokens; the library breaks no promise there. Each cause of a deviation is also reproduced with the library alone, in a test without code of this " +
		"module.\n\nNumbers of promises:\n\n" + t.RenderMarkdown() +
		"\n\n[One page](matrix.html) has every lock and every promise. [Known breaks](known-breaks.md) lists what has broken in these and other libraries, and which scenario looks for it.\n"
}

func (r *Run) libraryPage(file string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s# %s in the suite\n\n"+
		"The [overview](../other-libraries.md) says how to read this. The scenarios are explained in [conformance](../conformance.md#the-scenarios).\n", generated, titleOf(file))
	for _, l := range thirdparty.All() {
		if libraryFile(l.Name) == file {
			r.librarySection(&b, l)
		}
	}
	return b.String()
}

// titleOf returns the name of the first library on a page.
func titleOf(file string) string {
	all := thirdparty.All()
	return all[slices.IndexFunc(all, func(l thirdparty.Library) bool { return libraryFile(l.Name) == file })].Name
}

// librarySeen is what the run saw of a library.
type librarySeen struct {
	verdicts map[string]verdict // by scenario
	count    map[verdict]int
	doubts   int
}

func (r *Run) seenOf(l thirdparty.Library) librarySeen {
	seen := librarySeen{map[string]verdict{}, map[verdict]int{}, 0}
	for _, s := range r.Results[otherLibraries] {
		if s.Test != l.Test {
			continue
		}
		seen.verdicts[s.Scenario] = of(s)
		seen.count[of(s)]++
		if doubtful(s) {
			seen.doubts++
		}
	}
	return seen
}

func (r *Run) version(l thirdparty.Library) string {
	for _, row := range r.Setting.Libraries {
		if row.Name == l.Name {
			return row.Version
		}
	}
	return ""
}

func (r *Run) librarySection(b *strings.Builder, l thirdparty.Library) {
	seen := r.seenOf(l)
	fmt.Fprintf(b, "\n## %s\n\n%s; %s.\n\nKept: %d promises%s; broken: %d; lacks what is asked for: %d; not tried: %d.\n\n", l.Name, strings.TrimSpace(l.Module+" "+r.version(l)), l.Settings,
		seen.count[held]+seen.count[lucky], ofThem(seen.doubts), seen.count[broken], seen.count[lacks], seen.count[untried]+seen.count[unpromised])
	t := newTable("how it differs from the contract", "scenarios that fail, or that need what the library lacks", "reproduced by")
	for _, f := range l.Findings {
		scenarios := slices.DeleteFunc(slices.Concat(f.Scenarios, f.Sometimes), func(name string) bool {
			v := seen.verdicts[name]
			return v != broken && v != lacks
		})
		t.AppendRow(table.Row{cellText(plain(f.Cause)), orNone(scenarios), f.Repro})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}

func orNone(scenarios []string) string {
	if len(scenarios) == 0 {
		return "none in this run"
	}
	return strings.Join(scenarios, "; ")
}
