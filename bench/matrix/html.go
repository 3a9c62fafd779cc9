package main

import (
	_ "embed"
	"html/template"
	"strings"

	"github.com/go-locker/locker/bench/thirdparty"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/backends"
)

// htmlFile is the page of every lock and every promise, below docs.
const htmlFile = "matrix.html"

//go:embed matrix.html
var htmlText string

var htmlTemplate = template.Must(template.New(htmlFile).Parse(htmlText))

// htmlLock is a column.
type htmlLock struct {
	Language, Name, Version string
	Page                    string // its evidence
	results                 []conformance.Result
}

// htmlRow is a scenario.
type htmlRow struct {
	Topic, Name, Promise, Page string
	Cells                      []htmlCell
}

// htmlCell is what a scenario saw of a lock.
type htmlCell struct {
	Verdict, Text, Page, Evidence string
	Order                         int
}

// Class is one word.
func (c htmlCell) Class() string { return strings.NewReplacer(" ", "-", ",", "").Replace(c.Verdict) }

// htmlPage shows every lock in every language beside every promise.
func (r *Run) htmlPage() (string, error) {
	locks := r.htmlLocks()
	var rows []htmlRow
	for _, t := range topics {
		for _, section := range t.sections {
			for _, s := range section.scenarios() {
				row := htmlRow{Topic: section.title, Name: s.Name, Promise: s.Promise, Page: "conformance/" + t.file + ".md#" + anchor(s.Name)}
				for _, l := range locks {
					row.Cells = append(row.Cells, l.cell(s.Name, row.Page))
				}
				rows = append(rows, row)
			}
		}
	}
	var b strings.Builder
	err := htmlTemplate.Execute(&b, map[string]any{"Locks": locks, "Rows": rows, "Generated": template.HTML(strings.TrimSpace(generated))})
	return b.String(), err
}

// htmlLocks are our backends and other libraries.
func (r *Run) htmlLocks() []htmlLock {
	var all []htmlLock
	for _, b := range backends.All {
		all = append(all, htmlLock{Language: "Go", Name: "locker: " + b.Title, Page: "guarantees/" + b.Package + ".md", results: r.Results[b.Package]})
	}
	for _, l := range thirdparty.All() {
		language := l.Language
		if language == "" {
			language = "Go"
		}
		lock := htmlLock{Language: language, Name: l.Name, Version: r.version(l), Page: "other-libraries/" + libraryFile(l.Name) + ".md"}
		for _, s := range r.Results[otherLibraries] {
			if s.Test == l.Test {
				lock.results = append(lock.results, s)
			}
		}
		all = append(all, lock)
	}
	return all
}

// cell is the worst that was seen, with what was.
func (l htmlLock) cell(scenario, page string) htmlCell {
	c := htmlCell{Page: page, Evidence: l.Page}
	v := untried
	for _, s := range l.results {
		if s.Scenario == scenario && (of(s) > v || c.Text == "") {
			v = max(v, of(s))
			c.Text = s.Seen
			if s.Why != "" {
				c.Text = s.Why + ". Seen: " + s.Seen
			}
		}
	}
	c.Verdict, c.Order = strings.Trim(v.String(), "*"), int(v)
	return c
}
