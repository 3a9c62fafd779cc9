package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/stories"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The command still makes such recordings as there are in runs/.
func TestRecord_makesWhatTheStoriesTell(t *testing.T) {
	testwait.OnlyNightly(t, "it compiles the tests of backends, and runs scenarios")
	bin, err := filepath.Abs("../../../.bin")
	require.NoError(t, err)
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	for _, s := range stories.Stories() {
		for _, r := range s.Runs {
			if r.File != "pause" && r.File != "redlock-forgets" {
				continue
			}
			t.Run(r.Title, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "run.json")
				require.NoError(t, record(stories.Sources()[r.File], file))
				data, err := os.ReadFile(file)
				require.NoError(t, err)
				fresh, err := stories.Parse(data)
				require.NoError(t, err)
				kept, err := stories.Read(r.File)
				require.NoError(t, err)
				want, err := r.Told()
				require.NoError(t, err)
				got, err := r.View(fresh)
				require.NoError(t, err)
				assert.Equal(t, want.Lanes, got.Lanes)
				assert.Equal(t, marks(want), marks(got))
				assert.Equal(t, kept.Check().Refused(), fresh.Check().Refused())
			})
		}
	}
}

// marks are the signs of a run: its faults, and what became of its writes.
func marks(v stories.View) (all string) {
	for _, s := range v.Steps {
		all += s.Mark
	}
	return all
}
