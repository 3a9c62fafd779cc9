package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/breaks"
)

func TestChosen(t *testing.T) {
	all, err := chosen([]string{}, "")
	require.NoError(t, err)
	assert.Len(t, all, len(breaks.All()), "without a name")
	some, err := chosen(nil, "redsync")
	require.NoError(t, err)
	assert.Less(t, len(some), len(all))
	assert.NotEmpty(t, some)
	one, err := chosen([]string{"redsync-stopped-node"}, "")
	require.NoError(t, err)
	assert.Len(t, one, 1)
	_, err = chosen(nil, "nothing")
	require.Error(t, err, "showing nothing is no success")
}
