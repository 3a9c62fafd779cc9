package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/breaks"
)

func TestChosen(t *testing.T) {
	file := filepath.Join(t.TempDir(), breaks.JudgementsFile)
	all, err := chosen(nil, file)
	require.NoError(t, err)
	assert.Equal(t, breaks.Judged(), all, "nothing was judged")
	require.NoError(t, breaks.SaveJudgement(file, breaks.Judgement{Name: all[0]}))
	some, err := chosen(nil, file)
	require.NoError(t, err)
	assert.Equal(t, all[1:], some, "what was judged is not judged again")
	one, err := chosen([]string{all[0]}, file)
	require.NoError(t, err)
	assert.Equal(t, all[:1], one, "but by its name")
	_, err = chosen([]string{"nothing"}, file)
	require.ErrorContains(t, err, "none of these")
}
