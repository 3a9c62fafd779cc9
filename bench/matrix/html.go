package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/thirdparty"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/backends"
	"github.com/go-locker/locker/internal/test/testserver"
)

// htmlFile is the page of every lock and every promise, below docs.
const htmlFile = "matrix.html"

//go:embed matrix.html
var htmlText string

var htmlTemplate = template.Must(template.New(htmlFile).Funcs(template.FuncMap{"inc": func(i int) int { return i + 1 }}).Parse(htmlText))

// questions are what people ask first, and the scenarios that answer: yes if all are held.
var questions = []struct {
	text      string
	scenarios []string
}{
	{"Does one hold at a time, with nothing amiss?", []string{"a held lock is not granted to another process", "many processes exclude one another", "a random history is that of one lock"}},
	{"Is a lock free again after its holder has crashed?", []string{"a hold expires after its TTL", "a waiter wakes when the holder has crashed"}},
	{"Does a holder that was stopped know that it has lost the lock?", []string{"a process that was stopped past its TTL knows when it wakes"}},
	{"Does a holder that is cut off know in time?", []string{"a holder that is cut off knows in time, and harms nobody when it is back"}},
	{"Are there fencing tokens that rise?", []string{"tokens rise from process to process", "tokens rise after an expiry"}},
	{"Does one hold at a time through a failover?", []string{"a hold lasts though the server that lags most takes over"}},
	{"Does a lost reply leave nothing behind?", []string{"a take whose reply was lost leaves nothing behind"}},
	{"Can a waiter give up, and leaves nothing?", []string{"Lock returns soon after ctx is cancelled while it waits", "a cancelled wait leaves nothing behind"}},
	{"Are waiters served in the order in which they came?", []string{"waiters are served in the order in which they came"}},
	{"Are there shares, for readers?", []string{"readers share the lock"}},
}

// htmlLock is a column.
type htmlLock struct {
	Language, Name, Version string
	Page                    string
	Totals                  string

	results map[string][]conformance.Result // by scenario
}

// htmlRow is a question or a scenario.
type htmlRow struct {
	ID, Name, Promise string
	Class             string // of rows that are not always shown
	Cells             []htmlCell
}

// htmlCell is a verdict on a lock.
type htmlCell struct {
	Class, Text string
	Why         int // 1 more than the index in reasons; 0: nothing is to be said
}

// classes are those of verdicts in the page.
var classes = map[verdict]string{untried: "n", unpromised: "n", lacks: "l", held: "h", lucky: "k", broken: "b"}

// reasons are why verdicts are what they are, each once.
type reasons []string

// place returns 1 more than the index of what a result says.
func (r *reasons) place(s conformance.Result) int {
	text := cmp.Or(s.Why, strings.TrimPrefix(s.Seen, "skipped: "))
	if text == "" {
		return 0
	}
	i := slices.Index(*r, text)
	if i < 0 {
		i = len(*r)
		*r = append(*r, text)
	}
	return i + 1
}

// htmlPage shows every lock in every language beside every promise.
func (r *Run) htmlPage() (string, error) {
	locks, why := r.htmlLocks(), &reasons{}
	var asked, rows []htmlRow
	for _, q := range questions {
		row := htmlRow{Name: q.text}
		for _, l := range locks {
			row.Cells = append(row.Cells, l.answer(q.scenarios, why))
		}
		asked = append(asked, row)
	}
	differ := 0
	for _, s := range conformance.Scenarios() {
		row := htmlRow{ID: anchor(s.Name), Name: s.Name, Promise: s.Promise}
		for _, l := range locks {
			row.Cells = append(row.Cells, l.cell(s.Name, why))
		}
		if row.Class = row.class(slices.Contains(s.Needs, "RW")); row.Class != "same" {
			differ++
		}
		rows = append(rows, row)
	}
	texts, err := json.Marshal(why)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = htmlTemplate.Execute(&b, map[string]any{
		"Locks": locks, "Questions": asked, "Rows": rows, "Differ": differ, "Reasons": template.JS(texts), "Setting": r.Setting,
		"Day": r.Setting.At.Format("2 January 2006"), "Generated": template.HTML(generated),
	})
	return b.String(), err
}

// class is same if all locks that were tried have one verdict, and fails if one of them is broken.
// Of the many rows about shares one says which locks lack them.
func (r htmlRow) class(shares bool) string {
	first := ""
	class := "same"
	for _, c := range r.Cells {
		switch {
		case c.Class == "n", c.Class == "l" && shares && r.Name != "readers share the lock":
		case c.Class == "b":
			return "fails"
		case first != "" && c.Class != first:
			class = ""
		default:
			first = c.Class
		}
	}
	return class
}

// htmlLocks are the locks of our backends and of other libraries that the run has tried.
func (r *Run) htmlLocks() []htmlLock {
	var all []htmlLock
	for _, b := range backends.All {
		if len(r.Results[b.Package]) == 0 {
			continue
		}
		all = append(all, lockOf("Go", "locker: "+b.Title, "", pageOf(b), r.Results[b.Package]))
	}
	for _, l := range thirdparty.All() {
		results := slices.DeleteFunc(slices.Clone(r.Results[otherLibraries]), func(s conformance.Result) bool { return s.Test != l.Test })
		version := ""
		if i := slices.IndexFunc(r.Setting.Libraries, func(row LibraryRow) bool { return row.Name == l.Name }); i >= 0 {
			version = r.Setting.Libraries[i].Version
		}
		all = append(all, lockOf(cmp.Or(l.Language, "Go"), l.Name, version, "evidence/known-breaks.md", results))
	}
	return all
}

func lockOf(language, name, version, page string, results []conformance.Result) htmlLock {
	l := htmlLock{Language: language, Name: name, Version: version, Page: page, results: map[string][]conformance.Result{}}
	for _, s := range results {
		l.results[s.Scenario] = append(l.results[s.Scenario], s)
	}
	count := map[verdict]int{}
	for _, same := range l.results {
		count[worst(same)]++
	}
	l.Totals = fmt.Sprintf("%d held, %d broken, %d lacking, %d not tried",
		count[held]+count[lucky], count[broken], count[lacks], len(conformance.Scenarios())-count[held]-count[lucky]-count[broken]-count[lacks])
	return l
}

// worst returns the worst result of a scenario, and the verdict on it.
func (l htmlLock) worst(scenario string) (conformance.Result, verdict) {
	var bad conformance.Result
	v := untried
	for i, s := range l.results[scenario] {
		if of(s) > v || i == 0 {
			bad, v = s, max(v, of(s))
		}
	}
	return bad, v
}

// cell is the worst that was seen.
func (l htmlLock) cell(scenario string, why *reasons) htmlCell {
	s, v := l.worst(scenario)
	c := htmlCell{Class: classes[v], Text: strings.Trim(v.String(), "*")}
	if v == broken || v == lucky || v == lacks {
		c.Why = why.place(s)
	}
	return c
}

// answer is yes if all scenarios that were tried are held, and else what the worst of them is.
func (l htmlLock) answer(scenarios []string, why *reasons) htmlCell {
	words := map[string]string{"h": "yes", "k": "yes, by luck", "b": "no", "l": "lacks", "n": "not tried"}
	var worst htmlCell
	for _, s := range scenarios {
		if c := l.cell(s, why); worst.Class == "" || strings.Index("nhklb", c.Class) > strings.Index("nhklb", worst.Class) {
			worst = c
		}
	}
	worst.Text = words[worst.Class]
	return worst
}

const generated = "<!-- Made by `make matrix` from docs/guarantees.json. Not to be edited. -->"

// servers returns the versions of the servers that the tests start.
func servers() (string, error) {
	var all []string
	for _, s := range [][2]string{
		{"redis-server", "Redis"},
		{"valkey-server", "Valkey"},
		{"etcd", "etcd"},
		{"zookeeper-server", "ZooKeeper"},
		{"postgres", "PostgreSQL"},
		{"kube-apiserver", "Kubernetes"},
		{"mariadbd", "MariaDB"},
		{"versitygw", "S3 versitygw"},
		{"minio", "S3 MinIO of"},
	} {
		version, err := testserver.Version(s[0])
		if err != nil {
			return "", err
		}
		all = append(all, s[1]+" "+version)
	}
	return strings.Join(all, ", "), nil
}

// guarantees are the columns of the table, with what they mean.
var guarantees = []struct {
	locker.Guarantee
	meaning string
}{
	{locker.Exclusive, "one holder at a time"},
	{locker.Failover, "one holder, also through the loss of a server"},
	{locker.Fencing, "tokens rise"},
	{locker.FencingDurable, "tokens rise through lost data"},
	{locker.Ordered, "waiters are served in order"},
	{locker.Woken, "waiters are woken"},
}

// tableFile is the page that has the table, below docs.
const tableFile = "backends/README.md"

// table has a row for each backend and a column for each guarantee, and sums up the run.
func (r *Run) table() string {
	var b strings.Builder
	b.WriteString("| |")
	for _, g := range guarantees {
		fmt.Fprintf(&b, " %s |", g.meaning)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(guarantees)) + "\n")
	for _, backend := range backends.All {
		fmt.Fprintf(&b, "| [%s](%s) |", backend.Title, strings.TrimPrefix(pageOf(backend), "backends/"))
		for _, g := range guarantees {
			fmt.Fprintf(&b, " %s |", r.cell(backend, g.Guarantee))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\nOn %s, with each scenario once for each backend and topology: %s. [The matrix](../%s) has each, and how the run was made.\n",
		r.Setting.At.Format("2006-01-02"), r.summary(), htmlFile)
	return b.String()
}

// pageOf is the page of a backend. What has the protocol of another is on its page.
func pageOf(b backends.Backend) string {
	return "backends/" + strings.ReplaceAll(b.Package, "redigo", "redis") + ".md"
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
		text = "held; **broken** when: " + strings.Join(exceptions, "; ")
	default:
		text = "**broken** when: " + strings.Join(exceptions, "; ")
	}
	if left != nil && (v == held || len(exceptions) > 0) {
		text += "; not tried when: " + strings.Join(left, "; ")
	}
	return text
}

// anchor returns the anchor of a heading.
func anchor(title string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == ' ', c == '-':
			return '-'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_':
			return c
		default:
			return -1
		}
	}, strings.ToLower(title))
}
