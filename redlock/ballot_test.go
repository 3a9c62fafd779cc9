package redlock

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Node 0 has a token that is too far ahead for the others' clocks.
func TestBallot_leavesOutATokenThatTooManyRefuse(t *testing.T) {
	b := newBallot(3)
	b.grant(0, 100)
	b.grant(1, 5)
	assert.Equal(t, []int{1}, b.raise())
	b.rejectGoal(1, 100)
	assert.Empty(t, b.raise(), "node 2 may yet accept it")
	assert.Equal(t, undecided, b.outcome())
	b.grant(2, 7)
	assert.Equal(t, []int{2}, b.raise())
	b.rejectGoal(2, 100)
	assert.Equal(t, []int{1}, b.raise(), "to the largest of theirs")
	assert.EqualValues(t, 7, b.goal)
	b.grant(1, 7)
	assert.Equal(t, won, b.outcome())

	b = newBallot(3)
	b.grant(0, 100)
	b.grant(1, 5)
	b.raise()
	b.record(2, refused)
	b.rejectGoal(1, 100)
	assert.Empty(t, b.raise())
	assert.Equal(t, denied, b.outcome())
}

// A larger token than the goal is not the same one.
func TestBallot_countsOneToken(t *testing.T) {
	b := newBallot(3)
	b.grant(0, 5)
	b.grant(1, 7)
	assert.Equal(t, []int{0}, b.raise())
	b.grant(2, 9)
	assert.Empty(t, b.raise())
	assert.Equal(t, undecided, b.outcome())
	b.grant(0, 7)
	assert.Equal(t, won, b.outcome())
}

// With nothing under way any more every ballot is decided.
func TestBallot_isDecidedWhenNothingIsUnderWay(t *testing.T) {
	type message struct {
		node int
		goal uint64 // 0: propose
	}
	for seed := range uint64(50_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 3 + 2*r.IntN(2)
		b := newBallot(n)
		var flight []message
		limit, own := make([]uint64, n), make([]uint64, n)
		for i := range n {
			flight = append(flight, message{node: i})
			own[i] = 5 + r.Uint64N(3)
			limit[i] = 50
			if r.IntN(4) == 0 {
				own[i], limit[i] = 100+r.Uint64N(2), 200
			}
		}
		for len(flight) > 0 && b.outcome() == undecided {
			k := r.IntN(len(flight))
			m := flight[k]
			flight = append(flight[:k], flight[k+1:]...)
			i := m.node
			switch {
			case m.goal == 0:
				switch r.IntN(6) {
				case 0:
					b.record(i, absent)
				case 1:
					b.record(i, refused)
				default:
					b.grant(i, own[i])
				}
			default:
				switch x := r.IntN(10); {
				case x == 0:
					b.record(i, absent)
				case x == 1:
					b.record(i, gone)
				case m.goal > limit[i]:
					b.rejectGoal(i, m.goal)
				case m.goal < own[i]:
					b.record(i, gone)
				default:
					own[i] = m.goal
					b.grant(i, m.goal)
				}
			}
			for _, j := range b.raise() {
				flight = append(flight, message{j, b.goal})
			}
		}
		if b.outcome() == undecided {
			t.Fatalf("seed %d: undecided for ever: %+v", seed, b)
		}
	}
}
