package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testwait"
)

// The story that the page tells.
func TestPlay_aPausedHolderWritesAfterItsSuccessor(t *testing.T) {
	for name, c := range map[string]struct {
		checks bool
		last   []string // kinds of the last entries
		value  string
	}{
		"the report checks tokens":    {true, []string{"pause", "refused", "lost"}, "by Ben"},
		"the report checks no tokens": {false, []string{"pause", "broken", "lost"}, "by Ada"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlay(c.checks)
				step := func(who, what string) {
					go p.step(context.Background(), who, what)
					synctest.Wait()
				}
				states := func() (all []string) {
					for _, w := range p.look().Workers {
						all = append(all, w.State)
					}
					return all
				}
				step("Ada", "lock")
				step("Ben", "lock")
				time.Sleep(10 * ttl)
				assert.Equal(t, []string{"holds", "waits", "idle"}, states(), "Ada renews her hold")
				step("Ada", "pause")
				time.Sleep(2 * ttl)
				assert.Equal(t, []string{"paused", "holds", "idle"}, states())
				assert.Equal(t, "Ben", p.look().Holder)
				step("Ben", "write")
				step("Ada", "resume")
				assert.Equal(t, []string{"lost", "holds", "idle"}, states())

				v := p.look()
				var last []string
				for _, e := range v.Log[len(v.Log)-3:] {
					last = append(last, e.Kind)
				}
				assert.Equal(t, c.last, last)
				assert.Equal(t, c.value, v.Value)
				step("Ada", "write")
				assert.Equal(t, c.value, p.look().Value, "who looks does not write after a loss")
				step("Ada", "unlock")
				step("Ben", "unlock")
				assert.Empty(t, p.look().Holder)
				p.close()
				time.Sleep(ttl) // what renews has noticed
			})
		})
	}
}

func TestBuild_makesOnePageThatNeedsNothingElse(t *testing.T) {
	testwait.OnlyNightly(t, "it compiles the standard library for WebAssembly")
	file := filepath.Join(t.TempDir(), "new", "playground.html")
	require.NoError(t, build(file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "/*GLUE*/")
	assert.NotContains(t, string(text), ">PROGRAM<")
	assert.Less(t, len(text), 3_000_000)
}
