package stories_test

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/stories"
)

// views are those of the page, by the titles of their runs.
func views(t *testing.T) map[string]stories.View {
	t.Helper()
	all := map[string]stories.View{}
	for _, s := range stories.Stories() {
		for _, r := range s.Runs {
			v, err := r.Told()
			require.NoError(t, err, r.File)
			all[r.Title] = v
		}
	}
	return all
}

// believers is how many processes believe, after a step, that they hold the lock.
func believers(s stories.Step) (n int) {
	for _, state := range s.States {
		if state.Kind == "holds" || state.Kind == "stale" {
			n++
		}
	}
	return n
}

func has(v stories.View, kind string) bool {
	return slices.ContainsFunc(v.Steps, func(s stories.Step) bool {
		return slices.ContainsFunc(s.States, func(state stories.State) bool { return state.Kind == kind })
	})
}

// What each run is said to show, asked of the recording.
func TestStories_areWhatTheRecordingsShow(t *testing.T) {
	t.Parallel()
	all := views(t)
	require.Len(t, all, 8)
	for title, v := range all {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			two := strings.HasSuffix(title, ": two hold")
			lost := strings.HasSuffix(title, ": an update is lost")
			refused := strings.HasSuffix(title, ": the late write is refused")
			require.True(t, two || lost || refused || strings.HasSuffix(title, ": the hold goes on"))

			assert.Equal(t, two, v.Check().Refused(), "one lock cannot have had the history")
			assert.Equal(t, two, v.Outcome != "kept", v.Outcome)
			assert.Equal(t, two || lost, has(v, "spoilt"), "an update is lost")
			assert.Equal(t, two || lost || refused, slices.ContainsFunc(v.Steps, func(s stories.Step) bool { return believers(s) == 2 }))
			var accepted, stale history.Event
			for _, e := range v.Events {
				switch {
				case e.Op != history.OpWrite || !e.Fenced || stale.Op != "":
				case e.Err == history.NoErr:
					accepted = e
				case e.Token > 0: // the suite also tries the token 0
					stale = e
				}
			}
			if two || refused {
				assert.Equal(t, history.IsStale, stale.Err, "the late write")
				assert.Greater(t, accepted.Token, stale.Token, "the later holder has written before")
				assert.NotEqual(t, accepted.Client, stale.Client)
			}
			for i, s := range v.Steps {
				assert.NotContains(t, s.Text, "%!")
				assert.NotEmpty(t, strings.TrimSpace(s.Text), "step %d", i)
				assert.Len(t, s.States, len(v.Lanes))
				assert.Less(t, s.Lane, len(v.Lanes))
			}
			assert.Less(t, len(v.Steps), 22, "a person follows them")
		})
	}
}

func TestRecordings_tellWhereTheyComeFrom(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("runs/*.json")
	require.NoError(t, err)
	sources := stories.Sources()
	assert.Len(t, paths, len(sources))
	for _, path := range paths {
		file := strings.TrimSuffix(filepath.Base(path), ".json")
		r, err := stories.Read(file)
		require.NoError(t, err, file)
		source := sources[file]
		assert.Equal(t, source.Scenario, r.Scenario, file)
		assert.Contains(t, r.Again, "locker/"+source.Package+" ", file)
		before, _, _ := strings.Cut(source.Servers, "%s")
		assert.Regexp(t, before+`\d+\.`, r.Servers, file)
		assert.Regexp(t, `^[0-9a-f]{7,}$`, r.Commit, file)
		_, err = time.Parse(time.DateOnly, r.Date)
		require.NoError(t, err, file)
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Less(t, info.Size(), int64(10_000), file)
	}
}

func TestWrite_hasAllStepsAndNeedsNothingElse(t *testing.T) {
	t.Parallel()
	var page bytes.Buffer
	require.NoError(t, stories.Write(&page))
	text := html.UnescapeString(page.String())
	for title, v := range views(t) {
		assert.Contains(t, text, "<h3>"+title+"</h3>")
		for _, s := range v.Steps {
			assert.Contains(t, text, s.Text)
		}
	}
	assert.NotRegexp(t, `<script [^>]*src|<link|<img|@import|url\(|fetch\(`, text)
	assert.Less(t, page.Len(), 200_000)
}

// recording is of one lock of A and B.
func recording(events []history.Event, faults ...history.Fault) stories.Recording {
	h := &history.History{Events: events, Faults: faults, Clients: []history.Client{
		{Who: "B", Name: "other", TTL: time.Second}, {Who: "B", Name: "x", TTL: time.Second}, {Who: "A", Name: "x", TTL: time.Second},
	}}
	for i, e := range h.Events {
		h.Events[i].Call, h.Events[i].Return = e.Call*int64(time.Millisecond), e.Return*int64(time.Millisecond)
	}
	return stories.Recording{History: h}
}

func TestView_tellsOfEachEventInASentence(t *testing.T) {
	t.Parallel()
	const a, b = 2, 1
	rec := recording([]history.Event{
		{Client: 0, Op: history.OpLock, Call: 1, Return: 2},
		{Client: a, Op: history.OpLock, Call: 10, Return: 11},
		{Client: a, Op: history.OpToken, Call: 12, Return: 12, Token: 7},
		{Client: b, Op: history.OpLock, Call: 20, Return: 21, Err: history.OtherErr, Text: "refused"},
		{Client: b, Op: history.OpLock, Call: 22, Return: 23, Err: history.OtherErr, Text: "refused"},
		{Client: b, Op: history.OpLock, Call: 24, Return: 400, Err: history.OtherErr, Text: "context canceled"},
		{Client: b, Op: history.OpLock, Call: 410, Return: 510},
		{Client: b, Op: history.OpToken, Call: 512, Return: 512, Token: 6},
		{Client: a, Op: history.OpToken, Call: 513, Return: 513},
		{Client: a, Op: history.OpUnlock, Call: 514, Return: 515, Err: history.IsLost},
		{Client: b, Op: history.OpUnlock, Call: 516, Return: 517},
	})
	v, err := stories.Run{File: "pause"}.View(rec)
	require.NoError(t, err)
	var told []string
	for _, s := range v.Steps {
		told = append(told, fmt.Sprintf("%s %s", s.At, s.Text))
	}
	assert.Equal(t, []string{
		"0.0 ms A gets the lock, for a TTL of 1 s, with the token 7.",
		"10 ms B calls Lock, which fails: the servers do not grant anything just now. It tries again.",
		"13 ms B calls Lock, and waits: the lock is A's.",
		"389 ms B has waited for 376 ms, and gives up. A still has the lock.",
		"399 ms B calls Lock, and waits: the lock is A's.",
		"499 ms B gets the lock, too, with a smaller token, 6. For A, its hold has 500 ms left.",
		"502 ms A looks at its hold: it is lost.",
		"504 ms A calls Unlock, and is told that its hold was lost.",
		"505 ms B calls Unlock. The lock is free.",
	}, told)

	_, err = stories.Run{File: "pause"}.View(recording(nil))
	require.ErrorContains(t, err, "A and B")
}
