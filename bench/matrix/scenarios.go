package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/conformance"
)

// topic is a page of docs/conformance: some sections of the suite.
type topic struct {
	file, title string
	sections    []section
}

// section has the scenarios from that named first up to the first of another section, in the order of the suite.
type section struct{ title, first string }

var topics = []topic{
	{"taking", "Take a lock", []section{
		{"One holder", "a held lock is not granted to another process"},
		{"TryLock", "TryLock of a held lock says ErrHeld"},
		{"The end of ctx", "Lock refuses a ctx that has ended"},
		{"Clean-up after a failed attempt", "a cancelled wait leaves nothing behind"},
		{"Names", "any name of UTF-8 can be locked"},
	}},
	{"waiting", "Wait for a lock", []section{
		{"Waiters", "the lock passes from holder to holder"},
		{"Goroutines that share a Locker", "a goroutine that waits does not disturb the hold of another on the same Locker"},
	}},
	{"holding", "Hold and release a lock", []section{
		{"Expiry", "a hold expires after its TTL"},
		{"Extend", "Extend keeps a hold past its TTL"},
		{"Renewal", "a renewed hold outlives its TTL"},
		{"Unlock", "Unlock of a hold that expired says ErrLost"},
		{"Use after Unlock or loss", "a Locker can be locked again after Unlock"},
		{"Loss", "Lost fires no later than Deadline"},
	}},
	{"tokens", "Fencing tokens", []section{
		{"Tokens", "tokens rise from process to process"},
		{"Guarded resources", "a late write with the token of a lost hold is refused"},
	}},
	{"servers", "Servers that fail", []section{
		{"Silent servers", "Lock returns soon after ctx ends though the server is silent"},
		{"Crashes, lost data, failovers, clocks", "an outage is an error or a wait, never ErrHeld"},
		{"The harness's own faults", "the fault StopServer acts"},
	}},
	{"network", "Networks and processes that fail", []section{
		{"Lost replies", "a take whose reply was lost leaves nothing behind"},
		{"Slow and cut connections", "a holder that is cut off knows in time, and harms nobody when it is back"},
		{"Requests that arrive late", "a take that arrives late leaves nothing behind"},
		{"Processes that stop or die", "a process that was stopped past its TTL knows when it wakes"},
	}},
	{"read-write", "Read-write locks", []section{
		{"Shares", "readers share the lock"},
		{"The queue of readers and writers", "readers that come after a waiting writer wait for it"},
		{"Histories of readers and writers", "a random history of readers and writers is that of one read-write lock"},
	}},
	{"readers-and-faults", "Readers and faults", []section{
		{"Readers and faults", "a share whose reply was lost leaves nothing behind"},
	}},
	{"histories", "Random histories", []section{
		{"Histories", "a random history is that of one lock"},
	}},
}

// scenarios returns those of a section.
func (s section) scenarios() []conformance.Scenario {
	all := conformance.Scenarios()
	i := slices.IndexFunc(all, func(c conformance.Scenario) bool { return c.Name == s.first })
	if i < 0 {
		return nil
	}
	end := slices.IndexFunc(all[i+1:], func(c conformance.Scenario) bool { return begins(c.Name) })
	if end < 0 {
		return all[i:]
	}
	return all[i : i+1+end]
}

// begins reports whether a scenario is the first of a section.
func begins(scenario string) bool {
	return slices.ContainsFunc(topics, func(t topic) bool {
		return slices.ContainsFunc(t.sections, func(s section) bool { return s.first == scenario })
	})
}

// link returns the name of a scenario as a link to its row. dir leads to docs/conformance.
func link(dir, scenario string) string {
	for _, t := range topics {
		for _, s := range t.sections {
			if slices.ContainsFunc(s.scenarios(), func(c conformance.Scenario) bool { return c.Name == scenario }) {
				return fmt.Sprintf("[%s](%s%s.md#%s)", scenario, dir, t.file, anchor(scenario))
			}
		}
	}
	return scenario
}

// page lists the topic's scenarios: what each promises, what it needs, and where that comes from.
func (t topic) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s# Scenarios: %s\n\n"+
		"These scenarios are a part of the [conformance suite](../conformance.md). *needs*: the fields of the Harness without which the scenario is skipped. *from*: the sources at the end of the page. (*): a run sees a violation only by luck.\n", generated, t.title)
	sources := new(list)
	for _, s := range t.sections {
		fmt.Fprintf(&b, "\n## %s\n\n", s.title)
		rows := newTable("scenario", "promise", "needs", "from")
		for _, c := range s.scenarios() {
			name := fmt.Sprintf("<a id=%q></a>%s", anchor(c.Name), c.Name)
			if !c.Deterministic {
				name += " (*)"
			}
			var from []string
			for _, source := range c.Sources {
				from = append(from, fmt.Sprintf("[%d]", sources.place(source)))
			}
			rows.AppendRow(table.Row{name, c.Promise, strings.Join(c.Needs, ", "), strings.Join(from, " ")})
		}
		fmt.Fprintf(&b, "%s\n", rows.RenderMarkdown())
	}
	b.WriteString("\n## Sources\n\n")
	for i, source := range *sources {
		fmt.Fprintf(&b, "%d. %s\n", i+1, source)
	}
	return b.String()
}

// topicTable lists the pages of docs/conformance.
func topicTable() string {
	t := newTable("scenarios", "", "number")
	for _, topic := range topics {
		var titles []string
		n := 0
		for _, s := range topic.sections {
			titles = append(titles, strings.ToLower(s.title[:1])+s.title[1:])
			n += len(s.scenarios())
		}
		t.AppendRow(table.Row{fmt.Sprintf("[%s](conformance/%s.md)", topic.title, topic.file), strings.Join(titles, "; "), n})
	}
	return t.RenderMarkdown() + "\n"
}

// list is one in which everything stands once.
type list []string

// place returns where s stands, from 1.
func (l *list) place(s string) int {
	i := slices.Index(*l, s)
	if i < 0 {
		i = len(*l)
		*l = append(*l, s)
	}
	return i + 1
}
