package main

import (
	"os/exec"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/go-locker/locker/internal/backends"
)

const generated = "<!-- Made by `make matrix` from docs/guarantees.json. Not to be edited. -->\n\n"

// pages returns the texts of files below docs. A page of a folder has the folder's name, and links to the pages in it.
func (r *Run) pages() map[string]string {
	all := map[string]string{
		"guarantees.md":      r.guaranteesPage(),
		"comparison.md":      r.comparisonPage(),
		"other-libraries.md": r.librariesPage(),
	}
	for _, b := range backends.All {
		all["guarantees/"+b.Package+".md"] = r.backendPage(b)
	}
	for _, t := range topics {
		all["conformance/"+t.file+".md"] = t.page()
	}
	for _, file := range libraryFiles() {
		all["other-libraries/"+file+".md"] = r.libraryPage(file)
	}
	return all
}

// tables returns those in pages that people write.
func (r *Run) tables() map[string]string {
	return map[string]string{"docs/backends/README.md": r.table("../guarantees/"), "docs/conformance.md": topicTable()}
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

func newTable(columns ...string) table.Writer {
	t := table.NewWriter()
	header := make(table.Row, len(columns))
	for i, c := range columns {
		header[i] = c
	}
	t.AppendHeader(header)
	t.Style().Format.Header = text.FormatDefault
	return t
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

// plain returns text that Markdown leaves alone.
func plain(s string) string {
	return strings.NewReplacer("<", "&lt;", "*", "\\*", "_", "\\_").Replace(strings.TrimSpace(s))
}

func cellText(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
