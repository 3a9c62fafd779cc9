package conformance_test

import "github.com/go-locker/locker/conformance"

// shareMutants are shares with a flaw that faults bring to light.
func shareMutants() (all []mutant) {
	for _, m := range [][2]string{
		{"a writer that was refused keeps readers out until it gives up", "a TryLock that fails keeps no reader out"},
		{"a writer that was refused keeps readers out until it gives up", "a writer that is killed while it waits does not hold up the readers behind it"},
		{"a writer that was refused keeps readers out until it gives up", "a writer that is stopped while it waits does not hold up the readers behind it"},
		{"a downgrade that is sent again is refused", "a downgrade whose reply was lost can be sent again"},
		{"tokens are counted, and replicated later", "tokens rise from a writer to a share though the server that lags most takes over"},
		{"a share never expires", "a share whose reply was lost leaves nothing behind"},
		{"waits for an answer that was lost", "an RLock whose replies are lost for a while is not held up by itself"},
		{"Unlock does not look at its answer", "an Unlock of a share whose reply was lost has freed the lock"},
		{"what was released is not held", "a release of a share that is sent again frees the lock"},
		{"a release that is sent again ends a share of another's", "a release of a share that is sent again frees the lock"},
		{"what is sent again was done", "a release that is sent again never says nil if the share had ended"},
		{"an Extend that fails ends the hold", "an Extend of a share whose reply was lost leaves it as it was"},
		{"Extend counts before it is answered", "an Extend of a share whose reply was lost leaves it as it was"},
		{"a share never expires", "a request for a share that arrives late leaves nothing behind"},
		{"a take is granted however late", "a request for a share that arrives more than a TTL late takes nothing"},
		{"the release of a share is a count", "an Unlock of a share that arrives late leaves the writer alone"},
		{"owner is the Locker", "an Unlock of a share that arrives late leaves the next share alone"},
		{"the Extend of a share sets what is gone", "an Extend of a share that arrives late leaves the writer alone"},
		{"believes what it knew", "a reader that is cut off knows in time, and harms nobody when it is back"},
		{"a queue that the dead stay in", "a reader that waits and is cut off does not hold up those behind it"},
		{"RLock ignores its ctx", "RLock returns soon after ctx ends though the server is silent"},
		{"a share never expires", "an RLock that ended while the server was silent leaves nothing behind"},
		{"Unlock of a share goes on for two TTLs", "Unlock of a share returns by the deadline though the server is silent"},
		{"believes what it knew", "a reader that was stopped past its TTL knows when it wakes"},
		{"a share never expires", "the share of a process that was killed expires"},
		{"a queue that the dead stay in", "a reader that is killed while it waits does not hold up those behind it"},
	} {
		all = append(all, mutant{m[0], m[1], func() conformance.Harness { return naiveSharesWith(m[0]) }})
	}
	return all
}
