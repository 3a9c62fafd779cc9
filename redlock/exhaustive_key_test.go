package redlock

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// tidy forgets what makes no difference any more, so that fewer states differ.
func (s *exState) tidy(accepted bool) {
	for a := range s.attempts {
		at := &s.attempts[a]
		for i := range at.net {
			net := &at.net[i]
			if at.phase == over {
				net.release = net.release || net.answer == yes // once it is told
				net.answer, net.raised, net.ours, at.votes[i] = none, none, false, vote{}
			}
			if net.answer != yes && !accepted {
				net.token = 0
			}
			if !net.raise && !net.raiseAgain && net.raised == none {
				net.goal = 0
			}
		}
		if at.phase == over {
			at.goal = 0
		}
	}
}

// key is the same for states that differ in the names of the nodes alone. It may be the same for two
// other states with a chance of one in 2^64.
func (s *exState) key() uint64 {
	var columns [exNodes][32]byte
	for i := range columns {
		n := &s.nodes[i]
		c := append(columns[i][:0], byte(n.owner), byte(n.last), byte(n.clock), flags(n.known))
		for a := range s.attempts {
			at := &s.attempts[a]
			net := &at.net[i]
			c = append(c, byte(at.votes[i].state), byte(at.votes[i].token), net.answer, byte(net.token), byte(net.goal), net.raised,
				flags(net.take, net.takeAgain, net.raise, net.raiseAgain, net.release, net.ours))
		}
	}
	slices.SortFunc(columns[:], func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	h := digestOf(0, s.largest, uint64(s.doubles), uint64(s.silences), uint64(s.forgets))
	for a := range s.attempts {
		h = digestOf(h, uint64(s.attempts[a].phase), s.attempts[a].goal)
	}
	for i := range columns {
		for part := range slices.Chunk(columns[i][:], 8) {
			h = digestOf(h, binary.LittleEndian.Uint64(part))
		}
	}
	return h
}

func flags(set ...bool) (b byte) {
	for _, f := range set {
		b *= 2
		if f {
			b++
		}
	}
	return b
}
