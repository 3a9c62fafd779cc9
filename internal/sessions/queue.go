package sessions

import (
	"slices"

	"github.com/go-locker/locker/driver"
)

// Contender is who holds a lock, or waits for it, as the lock's queue has it. An adapter's
// contender embeds it.
type Contender struct {
	driver.Participant
	Shared bool   // it has a share, or waits for one
	Token  uint64 // of a holder; 0 if it is not settled, or not known
}

func (c Contender) contender() Contender { return c }

type contender interface{ contender() Contender }

// Holders returns those at the head of a queue that hold the lock: a writer, or the shares that no
// writer is before.
func Holders[C contender](queue []C) []C {
	writer := slices.IndexFunc(queue, func(c C) bool { return !c.contender().Shared })
	if writer < 0 {
		return queue
	}
	return queue[:max(writer, 1)]
}

// State returns what a queue that is not empty says of its lock.
func State[C contender](queue []C) driver.State {
	state, holders := driver.State{Held: true}, len(Holders(queue))
	for i, member := range queue {
		switch c := member.contender(); {
		case i >= holders:
			state.Waiters = append(state.Waiters, c.Participant)
		case c.Shared:
			state.Shares = append(state.Shares, c.Participant)
			state.Token = max(state.Token, c.Token) // all that are settled have the same
		default:
			state.Holder, state.Token = c.Participant, c.Token
		}
	}
	return state
}
