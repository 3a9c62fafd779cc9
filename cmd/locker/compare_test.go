package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/testserver"
)

func briefly(args ...string) []string {
	return append([]string{"compare", "--run", quick, "--rounds", "1", "--pairs", "5", "--duration", "50ms", "--goroutines", "3"}, args...)
}

func TestCompare_asMarkdownAndAsOnePage(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	file := filepath.Join(t.TempDir(), "compare.html")
	p := begin(t, briefly("--html", file, s.URL(), "mem://x")...)
	require.Zero(t, p.waitFor(2*time.Minute), p.stderr)
	markdown := p.stdout.String()
	for _, says := range []string{"# Locks compared", "| exclusive | held", "| Backend |", "| a held lock is not granted to another process | kept | kept |"} {
		assert.Contains(t, markdown, says)
	}
	wantForgotten(t, s)

	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	html := string(raw)
	for _, says := range []string{s.URL(), "mem://x", "one holder at a time", "a held lock is not granted to another process"} {
		assert.Contains(t, html, says)
	}
	assert.NotRegexp(t, `(?i)<(script|link|img|iframe)|@import|url\(|(src|href)="?(https?:)?//`, html, "it needs nothing beside it")
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), ".locker-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestCompare_asJSON(t *testing.T) {
	t.Parallel()
	o := locked(t, briefly("--output", "json", "mem://x", "mem://x")...)
	require.Zero(t, o.code, o.stderr)
	var c comparison
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &c))
	require.Len(t, c.Checks, 2)
	assert.Equal(t, "mem://x (2)", c.Checks[1].Backend)
	assert.Len(t, c.Bench.Results, 2)
}

func TestCompare_usage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--output", "html", "mem://x"}, {"--run", "(", "mem://x"}} {
		o := locked(t, briefly(args...)...)
		assert.Equal(t, exitUsage, o.code, "%q: %s", args, o.stderr)
	}
}

// What was seen of a lock, and what a URL says, is text, and no part of the page.
func TestCompare_escapesWhatItShows(t *testing.T) {
	t.Parallel()
	const evil = `zookeeper://h/<script>&"'`
	v := verdict{conformance.Result{Scenario: "s", Promise: "P.", Guarantee: locker.Exclusive, Outcome: conformance.Broken, Seen: "<script>two\nat once"}}
	c := &comparison{
		Checks: []*checkReport{{Backend: evil, Results: []verdict{v}}},
		Bench:  &benchReport{Results: []benchResult{{Backend: evil, Pair: latency{1, 1, 1}, HandOver: latency{1, 1, 1}, PairsPerSecond: []float64{1}}}},
	}
	assert.Equal(t, exitBroken, exitCode(c.verdict()))
	var html, markdown strings.Builder
	require.NoError(t, c.renderPage(&html))
	assert.NotContains(t, html.String(), "<script>")
	assert.Contains(t, html.String(), "&lt;script&gt;two")
	assert.Contains(t, html.String(), "✗ broken")
	require.NoError(t, c.writeMarkdown(&markdown))
	assert.Contains(t, markdown.String(), "**broken**: s")
}

func TestCompare_saysWhatWasNotKeptInEachTrial(t *testing.T) {
	t.Parallel()
	c := &comparison{Checks: []*checkReport{{Backend: "mem://x", Results: []verdict{inDoubt()}}}, Bench: &benchReport{
		Results: []benchResult{{Backend: "mem://x", Pair: latency{1, 1, 1}, HandOver: latency{1, 1, 1}, PairsPerSecond: []float64{1}}},
	}}
	require.NoError(t, c.verdict())
	var html, markdown strings.Builder
	require.NoError(t, c.renderPage(&html))
	require.NoError(t, c.writeMarkdown(&markdown))
	for _, part := range []string{"in 3 of 5 trials", "1 of them not in each trial", "1 in doubt"} {
		assert.Contains(t, html.String(), part)
		assert.Contains(t, markdown.String(), part)
	}
	assert.Contains(t, html.String(), "<small>in 3 of 5 trials")
	assert.Contains(t, markdown.String(), "| s | kept, in 3 of 5 trials")
}

func TestCompare_withAPageThatCannotBeWritten_doesNoWork(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Kill()
	for _, file := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing", "page.html")} {
		o := locked(t, briefly("--html", file, s.URL())...)
		assert.Equal(t, exitUsage, o.code, o.stderr)
	}
}

// What was found out until then is worth its time.
func TestCompare_withAServerThatGoesAway_keepsTheRest(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := begin(t, briefly("--output", "json", s.URL(), "mem://x")...)
	patience.Until(t, "its check has begun", func() bool { return strings.Contains(fmt.Sprint(s.Do("KEYS", "*")), "-check-") })
	s.Kill()
	require.Equal(t, exitUnreachable, p.waitFor(2*time.Minute), p.stderr)
	var c comparison
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &c), p.stderr)
	require.NotEmpty(t, c.Checks)
	last := c.Checks[len(c.Checks)-1]
	assert.Equal(t, "mem://x", last.Backend)
	assert.NotZero(t, last.count(conformance.Kept))
	assert.Contains(t, p.stderr.String(), s.URL())
}
