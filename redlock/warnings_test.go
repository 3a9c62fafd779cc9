package redlock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

// cautiousNode is a node that warns.
type cautiousNode struct {
	*fakeNode
	warnings func(ctx context.Context) ([]string, error)
}

func (n *cautiousNode) Warnings(ctx context.Context) ([]string, error) { return n.warnings(ctx) }

func TestWarnings_areThoseOfTheNodesThatAnswer(t *testing.T) {
	fakes, nodes := newFakes(4)
	warn := func(context.Context) ([]string, error) { return []string{"it evicts keys"}, nil }
	unreachable := func(context.Context) ([]string, error) { return nil, errRefused }
	hangs := func(ctx context.Context) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() }
	for i, f := range []func(context.Context) ([]string, error){warn, hangs, unreachable} {
		nodes[i] = &cautiousNode{fakes[i], f}
	}
	d, err := NewDriver(nodes, NodeTimeout(50*time.Millisecond))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	warnings, err := d.Warnings(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"a:1: it evicts keys"}, warnings)

	nodes[0].(*cautiousNode).warnings = unreachable
	_, err = d.Warnings(t.Context())
	require.ErrorIs(t, err, errRefused)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.Warnings(ended)
	require.Error(t, err)
}

func TestWarnings_ofNodesThatDoNotTell(t *testing.T) {
	d, _ := newFakeDriver(t, 3)
	defer func() { require.NoError(t, d.Close()) }()
	var w driver.Warner = d
	warnings, err := w.Warnings(t.Context())
	require.NoError(t, err)
	assert.Empty(t, warnings)
}
