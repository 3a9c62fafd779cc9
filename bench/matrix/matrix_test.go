package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/thirdparty"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/backends"
)

// seen is a result of redis.
func seen(outcome conformance.Outcome, g locker.Guarantee, condition string) conformance.Result {
	return conformance.Result{
		Test: "TestConformance/standalone", Scenario: "two at once", Outcome: outcome, Guarantee: g, Condition: condition,
		Seen: "B has it, and so has A", Why: "a key expires by the wall clock",
	}
}

func runOf(results ...conformance.Result) *Run {
	return &Run{Results: map[string][]conformance.Result{"redis": results}}
}

// lacking is a result of a scenario that asks for what the backend lacks.
func lacking(g locker.Guarantee) conformance.Result {
	r := seen(conformance.Skipped, g, "clock")
	r.Seen = "the Harness has no RW"
	return r
}

var redis = backends.All[1]

func TestCell(t *testing.T) {
	const x = locker.Exclusive
	crash, failover := seen(conformance.Kept, x, "the server crashes"), seen(conformance.Skipped, x, "failover")
	kept, known, lacked := seen(conformance.Kept, x, ""), seen(conformance.Known, x, "clock"), lacking(x)
	for name, c := range map[string]struct {
		results []conformance.Result
		want    string
	}{
		"nothing was tried":                    {nil, "not tried"},
		"all was skipped":                      {[]conformance.Result{seen(conformance.Skipped, x, "")}, "not tried"},
		"kept":                                 {[]conformance.Result{kept, seen(conformance.Kept, x, "clock")}, "held"},
		"kept where it was tried":              {[]conformance.Result{kept, seen(conformance.Skipped, x, "clock")}, "held; not tried when: clock"},
		"broken in a condition":                {[]conformance.Result{kept, known}, "held; **broken** when: clock"},
		"kept on one topology, broken on more": {[]conformance.Result{kept, seen(conformance.Kept, x, "clock"), known}, "held; **broken** when: clock"},
		"broken with nothing amiss":            {[]conformance.Result{kept, seen(conformance.Broken, x, "")}, "**broken**"},
		"of another guarantee":                 {[]conformance.Result{seen(conformance.Known, locker.Fencing, "")}, "not tried"},
		"not seen this time":                   {[]conformance.Result{kept, seen(conformance.Unseen, x, "clock")}, "held, by luck"},
		"tried in a condition only":            {[]conformance.Result{known}, "**broken** when: clock"},
		"broken, and another was not tried":    {[]conformance.Result{kept, known, seen(conformance.Skipped, x, "failover")}, "held; **broken** when: clock; not tried when: failover"},
		"some of a fault needs what is lacked": {[]conformance.Result{kept, lacked, seen(conformance.Skipped, x, "clock")}, "held; not tried when: clock"},
		"all of a fault needs what is lacked":  {[]conformance.Result{kept, lacked}, "held; not tried when: clock"},
		"one loss was tried, another was not":  {[]conformance.Result{crash, failover}, "held; not tried when: failover"},
		"no loss was tried":                    {[]conformance.Result{failover}, "not tried"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, runOf(c.results...).cell(redis, x)) })
	}
}

func TestContradictions(t *testing.T) {
	declared := func(s conformance.Result, level locker.Level) conformance.Result {
		s.Promised = &locker.Promise{Level: level}
		return s
	}
	known := seen(conformance.Known, locker.Exclusive, "clock")
	for name, c := range map[string]struct {
		result conformance.Result
		want   string
	}{
		"promised, and broken":                         {declared(known, locker.LevelYes), "declares"},
		"promised on a condition, and broken in it":    {declared(known, locker.LevelConditional), ""},
		"not promised":                                 {declared(known, locker.LevelNo), ""},
		"promised on a condition, and broken in peace": {declared(seen(conformance.Known, locker.Exclusive, ""), locker.LevelConditional), "nothing amiss"},
		"broken, and nobody expected it":               {seen(conformance.Broken, "", ""), "nobody expected"},
		"listed as broken, and kept":                   {seen(conformance.Stale, "", ""), "nobody expected"},
	} {
		t.Run(name, func(t *testing.T) {
			var says []string
			for _, err := range runOf(c.result).contradictions() {
				if err != nil {
					says = append(says, err.Error())
				}
			}
			if c.want == "" {
				assert.Empty(t, says)
				return
			}
			require.Len(t, says, 1)
			assert.Contains(t, says[0], c.want)
		})
	}
}

// TestPages_areThoseOfTheRun: nobody has written a cell by hand.
func TestPages_areThoseOfTheRun(t *testing.T) {
	r, err := open(filepath.Join("..", docs, "guarantees.json"))
	require.NoError(t, err)
	html, err := r.htmlPage()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join("..", docs, htmlFile))
	require.NoError(t, err)
	assert.True(t, html == string(text), "%s: run make matrix", htmlFile) //nolint:testifylint // The page is too long to be printed.
	text, err = os.ReadFile(filepath.Join("..", docs, tableFile))
	require.NoError(t, err)
	assert.Contains(t, string(text), r.table(), "%s: run make matrix", tableFile)
}

func TestHTML_hasEveryLockAndEveryPromise(t *testing.T) {
	bad := seen(conformance.Known, "", "")
	bad.Scenario, bad.Test, bad.Why = conformance.Scenarios()[0].Name, thirdparty.Programs()[0].Test, "by <design>"
	r := &Run{Results: map[string][]conformance.Result{otherLibraries: {bad}}}
	for _, b := range backends.All {
		r.Results[b.Package] = []conformance.Result{seen(conformance.Kept, "", "")}
	}
	page, err := r.htmlPage()
	require.NoError(t, err)
	columns, rows := len(backends.All)+len(thirdparty.All()), len(conformance.Scenarios())
	assert.Equal(t, rows+len(questions)+1, strings.Count(page, `scope="row"`))
	assert.Equal(t, (rows+len(questions)+1)*columns, strings.Count(page, "<td"))
	assert.Equal(t, 2, strings.Count(page, `">broken`)+strings.Count(page, `">no<`), "in its row, and in the question about it")
	assert.Contains(t, page, `"by \u003cdesign\u003e"`)
	assert.Contains(t, page, `<a href="backends/etcd.md">`)
	assert.Contains(t, page, `<tr id="a-held-lock-is-not-granted-to-another-process"`)
	assert.NotRegexp(t, `(src|href)="(https?:)?//`, page, "it needs no network")
	for _, q := range questions {
		for _, name := range q.scenarios {
			assert.True(t, slices.ContainsFunc(conformance.Scenarios(), func(s conformance.Scenario) bool { return s.Name == name }), name)
		}
	}
}
