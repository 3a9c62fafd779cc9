package main

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/thirdparty"
	"github.com/go-locker/locker/internal/backends"
)

const generated = "<!-- Made by `make matrix` from docs/guarantees.json. Not to be edited. -->\n\n"

// tables returns those in pages that people write: here with a row for each guarantee, a column for each backend.
func (r *Run) tables() map[string]string {
	return map[string]string{"docs/guarantees.md": r.table() + "\n" + r.about()}
}

// about says how the run was made.
func (r *Run) about() string {
	text := fmt.Sprintf("The run was on %s, %s, %s, %d processors, on %s. Each scenario counts once for each backend and topology. The results: %s.\n",
		r.Setting.Server, r.Setting.Go, r.Setting.OS, r.Setting.Processors, r.Setting.At.Format("2006-01-02"), r.summary())
	if r.Remark != "" {
		text += "\n" + r.Remark + "\n"
	}
	return text
}

// servers are the versions of the servers that the tests start.
func servers() string {
	var versions []string
	for _, server := range []string{"redis-server", "valkey-server", "etcd", "zookeeper-server", "postgres"} {
		out, err := exec.Command(server, "--version").Output()
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if err == nil && first != "" {
			versions = append(versions, serverVersion(first))
		}
	}
	return strings.Join(versions, ", ")
}

// serverVersion makes "Redis 7.0.15" of "Redis server v=7.0.15 sha=…", "etcd 3.6.16" of "etcd Version: 3.6.16", and "PostgreSQL 15.18" of
// "postgres (PostgreSQL) 15.18 (Debian …)".
func serverVersion(says string) string {
	words := strings.Fields(says)
	if words[0] == "postgres" && len(words) > 2 {
		return "PostgreSQL " + words[2]
	}
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, "v="); ok {
			return words[0] + " " + v
		}
	}
	return strings.ReplaceAll(says, " Version:", "")
}

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

func (r *Run) table() string {
	var b strings.Builder
	b.WriteString("| |")
	for _, backend := range backends.All {
		fmt.Fprintf(&b, " [%s](%s) |", backend.Title, pageOf(backend))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(backends.All)) + "\n")
	for _, g := range guarantees {
		fmt.Fprintf(&b, "| %s |", meaning[g])
		for _, backend := range backends.All {
			fmt.Fprintf(&b, " %s |", r.cell(backend, g))
		}
		b.WriteString("\n")
	}
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
		text = "held, but **broken** when: " + strings.Join(exceptions, "; ")
	default:
		text = "**broken** when: " + strings.Join(exceptions, "; ")
	}
	if left != nil && (v == held || len(exceptions) > 0) {
		text += "; not tried when: " + strings.Join(left, "; ")
	}
	return text
}

func (r *Run) version(l thirdparty.Library) string {
	for _, row := range r.Setting.Libraries {
		if row.Name == l.Name {
			return row.Version
		}
	}
	return ""
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
