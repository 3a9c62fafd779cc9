package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPercentile_isTheNearestRank(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for _, c := range []struct {
		sorted []int
		p      float64
		want   int
	}{
		{nil, 50, 0},
		{[]int{7}, 1, 7},
		{[]int{7}, 99, 7},
		{[]int{15, 20, 35, 40, 50}, 30, 20},
		{[]int{15, 20, 35, 40, 50}, 40, 20},
		{[]int{15, 20, 35, 40, 50}, 50, 35},
		{[]int{15, 20, 35, 40, 50}, 100, 50},
		{hundred, 0, 1},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 99.5, 100},
		{hundred, 100, 100},
	} {
		assert.Equal(t, c.want, percentile(c.sorted, c.p), "%v%% of %v", c.p, c.sorted)
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		shares []int
		want   float64
	}{
		{nil, 0},
		{[]int{0, 0}, 0},
		{[]int{3}, 1},
		{[]int{5, 5, 5, 5}, 1},
		{[]int{8, 0, 0, 0}, 0.25},
		{[]int{1, 1, 0, 0}, 0.5},
		{[]int{1, 3}, 0.8},
	} {
		assert.InDelta(t, c.want, jain(c.shares), 1e-12, "%v", c.shares)
	}
}

func TestSpread_isOfTheRounds(t *testing.T) {
	assert.Equal(t, spread{}, spreadOf(nil))
	assert.Equal(t, spread{4, 4, 4}, spreadOf([]float64{4}))
	assert.Equal(t, spread{2, 1, 9}, spreadOf([]float64{9, 1, 2}))
	assert.Equal(t, spread{3, 1, 9}, spreadOf([]float64{9, 1, 2, 4}))

	assert.Equal(t, "2 (1–9)", spread{2, 1, 9}.text(0))
	assert.Equal(t, "4.0", spread{4.01, 3.99, 4.03}.text(1), "a spread that rounds away")
}
