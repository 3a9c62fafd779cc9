package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

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

func (r *Run) guaranteesPage() string {
	var b strings.Builder
	b.WriteString(generated)
	b.WriteString("# What each backend's lock is worth\n\n" +
		"Each cell is what the [conformance suite](conformance.md) saw on real servers. The links in the header lead to the details of each backend.\n\n")
	b.WriteString(r.table("guarantees/"))
	b.WriteString("\n| word | meaning |\n| --- | --- |\n" +
		"| held | the scenarios of the promise were run, and none broke it, except under the faults behind *broken when*. The faults behind *not tried when* were not tried |\n" +
		"| broken | at least one scenario broke the promise |\n" +
		"| held, by luck | scenarios are known to break the promise now and then, but did not in this run |\n" +
		"| not promised | the backend declares that it does not promise this, and its scenarios were left out |\n" +
		"| lacks | the backend does not have what the scenario needs, such as [read-write locks](readers-writers.md) |\n" +
		"| not tried | no scenario for this promise can be run on this backend |\n" +
		"| no server | the fault cannot happen to locks in memory |\n")
	fmt.Fprintf(&b, "\nThe run was on %s, %s, %s, %d processors, on %s. Each scenario counts once for each backend and topology. The results: %s.\n\n", r.Setting.Server, r.Setting.Go, r.Setting.OS, r.Setting.Processors,
		r.Setting.At.Format("2006-01-02"), r.summary())
	if r.Remark != "" {
		b.WriteString(r.Remark + "\n\n")
	}
	b.WriteString("See also: [where the backends differ](comparison.md), [other libraries](other-libraries.md), [what each scenario promises](conformance.md#the-scenarios).\n\n" +
		"## Which scenarios show a promise\n\n" +
		"A *share* is the hold of a reader. *A random history is that of one lock* means: clients call at random, and one correct lock could have given all the answers that they got. " +
		"*The server that lags most* is the one that has received the fewest writes. The [pages of the scenarios](conformance.md#the-scenarios) describe each scenario.\n\n")
	fmt.Fprintf(&b, "%s\n", scenariosOfGuarantees())
	return b.String()
}

// scenariosOfGuarantees names the scenarios of each guarantee, by condition.
func scenariosOfGuarantees() string {
	t := newTable("promise", "when", "scenarios")
	for _, g := range guarantees {
		var conditions []string
		names := map[string][]string{}
		for _, s := range conformance.Scenarios() {
			if s.Guarantee != g {
				continue
			}
			if names[s.Condition] == nil {
				conditions = append(conditions, s.Condition)
			}
			names[s.Condition] = append(names[s.Condition], s.Name)
		}
		slices.Sort(conditions)
		for _, c := range conditions {
			t.AppendRow(table.Row{meaning[g], orAlways(c), strings.Join(names[c], "; ")})
		}
	}
	return t.RenderMarkdown()
}

// table has a row for each guarantee and a column for each backend. Its links lead to the pages in dir.
func (r *Run) table(dir string) string {
	columns := []string{""}
	for _, b := range backends.All {
		columns = append(columns, fmt.Sprintf("[%s](%s%s.md)", b.Title, dir, b.Package))
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

// serverless is the backend that has no server to which anything could happen.
const serverless, noServer = "memory", "no server"

// cell is held or broken, and under which condition, or which conditions were not tried.
func (r *Run) cell(b backends.Backend, g locker.Guarantee) string {
	v, exceptions, left := untried, []string(nil), []string(nil)
	for _, f := range r.findings(b.Package, g) {
		w := worst(f.results)
		if w == broken && f.condition != "" {
			exceptions = append(exceptions, f.condition)
			continue
		}
		if (w == untried || w == lacks) && f.condition != "" && b.Package != serverless {
			left = append(left, f.condition)
		}
		v = max(v, w)
	}
	text := v.String()
	if v == untried && b.Package == serverless {
		text = noServer
	}
	switch {
	case len(exceptions) == 0:
	case v == held, v == lucky:
		text = "held, but **broken** when: " + strings.Join(exceptions, "; ")
	default:
		text = "**broken** when: " + strings.Join(exceptions, "; ")
	}
	if left != nil && (v == held || len(exceptions) > 0) {
		text += "; not tried when: " + strings.Join(left, "; ")
	}
	return text
}

// backendPage has everything that the run saw of a backend.
func (r *Run) backendPage(backend backends.Backend) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s# What the lock of %s is worth\n\n", generated, backend.Title)
	b.WriteString("The results of the [conformance suite](../conformance.md). The [overview](../guarantees.md) says when and how the suite was run. It also compares the backends, explains the words, and names the " +
		"scenarios that are counted here.\n\n")
	if places := topologies(r.Results[backend.Package]); len(places) > 1 {
		fmt.Fprintf(&b, "The suite ran on: %s.\n\n", strings.Join(places, ", "))
	}
	t := newTable("promise", "the package declares", "when", "seen", "scenarios")
	for _, g := range guarantees {
		declared := "nothing"
		if p := r.promise(backend.Package, g); p != nil {
			declared = p.String()
		}
		for _, f := range r.findings(backend.Package, g) {
			seen := worst(f.results).String()
			if f.condition != "" && backend.Package == serverless {
				seen = noServer
			}
			t.AppendRow(table.Row{meaning[g], cellText(declared), orAlways(f.condition), seen, scenariosOf(f.results)})
		}
	}
	b.WriteString(t.RenderMarkdown() + "\n")
	r.breaches(&b, backend)
	return b.String()
}

func orAlways(condition string) string {
	if condition == "" {
		return "no server crashes, no clock jumps"
	}
	return condition
}

// scenariosOf counts the scenarios that show the verdict. It names those that show a breach, and those that were not kept in each
// trial.
func scenariosOf(results []conformance.Result) string {
	v := worst(results)
	var all, named []string
	for _, s := range results {
		if of(s) != v && (v != untried || of(s) != lacks) {
			continue
		}
		if !slices.Contains(all, s.Scenario) {
			all = append(all, s.Scenario)
		}
		if name := s.Scenario + share(s); (v == broken || v == lucky || doubtful(s)) && !slices.Contains(named, name) {
			named = append(named, name)
		}
	}
	if len(named) == 0 {
		return strconv.Itoa(len(all))
	}
	return fmt.Sprintf("%d: %s", len(all), strings.Join(named, "; "))
}

// seenAt is what was seen of a scenario, on topologies that are alike.
type seenAt struct {
	scenario, says string
	places         []string
	first, seen    string // the first of them, and what was seen there
}

// merge adds a result to those of the same scenario that say the same.
func merge(all []seenAt, s conformance.Result, says string) []seenAt {
	i := slices.IndexFunc(all, func(a seenAt) bool { return a.scenario == s.Scenario && a.says == says })
	if i < 0 {
		i = len(all)
		all = append(all, seenAt{scenario: s.Scenario, says: says, first: topology(s.Test), seen: s.Seen})
	}
	if p := topology(s.Test); p != "" && !slices.Contains(all[i].places, p) {
		all[i].places = append(all[i].places, p)
	}
	return all
}

func writeSeen(b *strings.Builder, title string, all []seenAt) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, a := range all {
		slices.Sort(a.places)
		fmt.Fprintf(b, "- *%s*%s%s", a.scenario, inBrackets(a.places), a.says)
		if len(a.places) > 1 {
			fmt.Fprintf(b, " Seen on %s: %s\n", a.first, plain(a.seen))
		} else {
			fmt.Fprintf(b, " Seen: %s\n", plain(a.seen))
		}
	}
}

func inBrackets(places []string) string {
	if len(places) == 0 {
		return ""
	}
	return " (" + strings.Join(places, ", ") + ")"
}

// breaches lists everything of the contract that was seen broken, or was not tried.
func (r *Run) breaches(b *strings.Builder, backend backends.Backend) {
	var bad, doubts []seenAt
	for _, s := range r.Results[backend.Package] {
		switch {
		case of(s) == broken:
			bad = merge(bad, s, ". "+sentence(s.Why))
		case doubtful(s):
			doubts = merge(doubts, s, share(s)+".")
		}
	}
	writeSeen(b, "Broken", bad)
	writeSeen(b, "Held, but not in each trial", doubts)
	r.notTried(b, backend)
}

// notTried lists the scenarios that were not run, by reason. It names a few, and counts many.
func (r *Run) notTried(b *strings.Builder, backend backends.Backend) {
	type key struct{ reason, place string }
	var keys []key
	missing, count := map[key][]string{}, 0
	for _, s := range r.Results[backend.Package] {
		if v := of(s); v != untried && v != lacks {
			continue
		}
		k := key{s.Seen, topology(s.Test)}
		if missing[k] == nil {
			keys = append(keys, k)
		}
		missing[k] = append(missing[k], s.Scenario)
		count++
	}
	if count == 0 {
		return
	}
	type row struct{ reason, scenarios string }
	var rows []row
	places := map[row][]string{}
	for _, k := range keys {
		const few = 2
		names := missing[k]
		scenarios := strconv.Itoa(len(names))
		if len(names) <= few {
			scenarios += ": " + strings.Join(names, "; ")
		}
		one := row{k.reason, scenarios}
		if !slices.Contains(rows, one) {
			rows = append(rows, one)
		}
		if k.place != "" {
			places[one] = append(places[one], k.place)
		}
	}
	t := newTable("reason", "on", "scenarios")
	for _, one := range rows {
		slices.Sort(places[one])
		t.AppendRow(table.Row{cellText(plain(one.reason)), strings.Join(places[one], ", "), one.scenarios})
	}
	fmt.Fprintf(b, "\n## Not run: %d\n\nThese scenarios were not tried, or need what the backend lacks. The backend's tests pass a *Harness* to the suite. It makes the Lockers and the servers, and causes [faults](../conformance.md#next-steps), such as "+
		"Faults.FailOver. *RW* stands for read-write locks. The [lists](../conformance.md#the-scenarios) say what each scenario needs.\n\n%s\n", count, t.RenderMarkdown())
}

func sentence(s string) string {
	if s == "" {
		return "Nobody expected that."
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}

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
