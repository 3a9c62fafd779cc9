package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/thirdparty"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/backends"
)

func TestHTML_hasEveryLockAndEveryPromise(t *testing.T) {
	bad := seen(conformance.Known, "", "")
	bad.Scenario, bad.Test, bad.Why = conformance.Scenarios()[0].Name, thirdparty.Programs()[0].Test, "by <design>"
	r := &Run{Results: map[string][]conformance.Result{otherLibraries: {bad}}}
	for _, b := range backends.All {
		r.Results[b.Package] = []conformance.Result{seen(conformance.Kept, "", "")}
	}
	page, err := r.htmlPage("../..")
	require.NoError(t, err)
	columns, rows := len(backends.All)+len(thirdparty.All()), len(conformance.Scenarios())
	assert.Equal(t, rows+len(questions)+1, strings.Count(page, `scope="row"`))
	assert.Equal(t, (rows+len(questions)+1)*columns, strings.Count(page, "<td"))
	assert.Equal(t, 2, strings.Count(page, `">broken`)+strings.Count(page, `">no<`), "in its row, and in the question about it")
	assert.Contains(t, page, `"t":"by \u003cdesign\u003e"`)
	assert.Contains(t, page, `<a href="backends/etcd.md">`)
	assert.Contains(t, page, `<tr id="a-held-lock-is-not-granted-to-another-process"`)
	assert.NotRegexp(t, `(src|href)="(https?:)?//`, page, "it needs no network")
	for _, q := range questions {
		for _, name := range q.scenarios {
			assert.True(t, slices.ContainsFunc(conformance.Scenarios(), func(s conformance.Scenario) bool { return s.Name == name }), name)
		}
	}
}

// The page of the last run is read on a phone.
func TestHTML_isSmall(t *testing.T) {
	file, err := os.Stat("../../docs/" + htmlFile)
	require.NoError(t, err)
	assert.Less(t, file.Size(), int64(200_000))
}

// One fact is one verdict, whatever says it: a finding of ours, or what a program does not claim.
func TestOf_whatALibraryLacks(t *testing.T) {
	const scenario = "tokens rise from process to process"
	var why string
	for _, l := range thirdparty.Libraries() {
		for _, f := range l.Findings {
			if f.Lacks && slices.Contains(f.Scenarios, scenario) {
				why = f.Cause + ": see " + f.Repro
			}
		}
	}
	assert.Equal(t, lacks, of(conformance.Result{Outcome: conformance.Known, Why: why}))
	assert.Equal(t, lacks, of(conformance.Result{Outcome: conformance.Skipped, Seen: "the program does not claim token: a hold has no fencing token"}))
	assert.Equal(t, broken, of(conformance.Result{Outcome: conformance.Known, Why: why + "; or two hold"}))
	assert.Equal(t, untried, of(conformance.Result{Outcome: conformance.Skipped, Seen: "the Harness has no Faults.KillServer"}))
}

// A link to a test leads to its line.
func TestTestsIn_hasTheLine(t *testing.T) {
	tests, err := testsIn("../thirdparty")
	require.NoError(t, err)
	for _, l := range thirdparty.All() {
		for _, f := range l.Findings {
			assert.Regexp(t, `^\.\./bench/thirdparty/\w+_test\.go#L\d+$`, tests[f.Repro], f.Repro)
		}
	}
}
