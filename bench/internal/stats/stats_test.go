package stats

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
		assert.Equal(t, c.want, Percentile(c.sorted, c.p), "%v%% of %v", c.p, c.sorted)
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
		assert.InDelta(t, c.want, Jain(c.shares), 1e-12, "%v", c.shares)
	}
}

func TestSpread_isOfTheRounds(t *testing.T) {
	assert.Equal(t, Spread{}, SpreadOf(nil))
	assert.Equal(t, Spread{4, 4, 4}, SpreadOf([]float64{4}))
	assert.Equal(t, Spread{2, 1, 9}, SpreadOf([]float64{9, 1, 2}))
	assert.Equal(t, Spread{3, 1, 9}, SpreadOf([]float64{9, 1, 2, 4}))

	assert.Equal(t, "2 (1–9)", Spread{2, 1, 9}.Text(0))
	assert.Equal(t, "4.0", Spread{4.01, 3.99, 4.03}.Text(1), "a spread that rounds away")
}

func TestRatios_areToTheBaselineOfTheRound(t *testing.T) {
	type one struct {
		library string
		round   int
		value   float64
	}
	all := []one{{"a", 0, 10}, {"base", 0, 20}, {"a", 1, 90}, {"base", 1, 30}, {"a", 2, 5}}
	key := func(o *one) (string, int) { return o.library, o.round }
	value := func(o *one) float64 { return o.value }
	ours := []one{all[0], all[2], all[4]}
	assert.Equal(t, "1.75 (0.50–3.00)", Ratios(ours, all, "base", key, value))
	assert.Equal(t, "1.00", Ratios([]one{all[1], all[3]}, all, "base", key, value))
	assert.Equal(t, "–", Ratios(ours, ours, "base", key, value), "no baseline")
}
