package conformance_test

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// flawed is a naive lock with a flaw.
func flawed(flaw, killer string) mutant {
	return mutant{flaw, killer, func() conformance.Harness { return naiveLocks(flaw, 0) }}
}

// thieves are naive locks that take what another holds, who hears ErrLost at its Unlock, or before
// it.
func thieves() (all []mutant) {
	for _, flaw := range []string{"looks, and takes a little later", "one take in two hundred does not look"} {
		for who, of := range map[string]func(*naive) locker.Locker{
			"":                                func(l *naive) locker.Locker { return l },
			", from those whom nothing tells": func(l *naive) locker.Locker { return mute{l} },
			", from those who are told":       func(l *naive) locker.Locker { return told{l} },
		} {
			for _, killer := range []string{"many processes exclude one another", oneHistory} {
				all = append(all, mutant{flaw + who, killer, func() conformance.Harness {
					h := naiveLocks(flaw, 0)
					newLock := h.New
					h.New = func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
						return of(newLock(t, name, ttl).(*naive))
					}
					h.Client = nil
					return h
				}})
			}
		}
	}
	return all
}

// mute is a Locker without tokens, and with nothing else that tells of a loss before Unlock does.
type mute struct{ locker.Locker }

func (mute) FencingToken() uint64 { return 0 }

// told is a Locker that asks the server each time whether its hold is there: its token is 0 as soon
// as another has the lock.
type told struct{ *naive }

func (l told) FencingToken() uint64 {
	if h := l.current(); h != nil && errors.Is(l.own(context.Background(), h), locker.ErrLost) {
		h.lose()
	}
	return l.naive.FencingToken()
}

func naiveMutants() []mutant {
	const whatever = "deletes whatever is there"
	const uneven = "a TTL that is no round number is kept as it is"
	const anytime = "a Lock cancelled at any moment leaves nothing behind"
	return []mutant{
		flawed("owner is the process", "a held lock is not granted to another process"),
		flawed("owner is the client", "a held lock is not granted to the same client"),
		flawed("no clean-up", anytime),
		flawed("clean-up on the caller's ctx", anytime),
		flawed("SETNX, then EXPIRE", anytime),
		flawed("TTL in whole seconds", "a hold expires after its TTL"),
		{"TTL in whole seconds, of which it has one", uneven, func() conformance.Harness {
			h := naiveLocks("TTL in whole seconds", 0)
			h.TTL = time.Second
			return h
		}},
		flawed("TTL in tenths of a second", uneven),
		flawed("a TTL of ten seconds at most", "a long TTL is kept as it is"),
		flawed("TTL in multiples of the shortest", uneven),
		flawed("Extend counts from the old deadline", "an extended hold lasts one TTL from its Extend, and no longer"),
		flawed("a refused take prolongs the hold", "a waiter wakes when the holder has crashed"),
		flawed("looks once a TTL", "a waiter wakes when the holder unlocks"),
		flawed("Extend in whole seconds", "an extended hold lasts one TTL from its Extend, and no longer"),
		flawed("Extend shortens", "an extended hold lasts one TTL from its Extend, and no longer"),
		flawed("tokens have eleven digits", "tokens rise over the holds of one Locker"),
		flawed("tokens are compared as strings", "tokens rise in the order of the holds, with many contending"),
		flawed("renewal ends with the ctx of Lock", "a renewed hold outlives its TTL"),
		flawed("renews too late", "a renewed hold outlives its TTL"),
		flawed(whatever, "Unlock after a take-over leaves the new hold alone"),
		flawed(whatever, "a second Unlock leaves the next hold alone"),
		flawed(whatever, "Unlock of one Locker leaves the holds of others alone"),
		flawed("looks, then deletes", "an Unlock overtaken by the expiry leaves the new hold alone"),
		flawed("extends whatever is there", "Extend after a take-over leaves the new hold alone"),
		flawed("owner set before the take", "a goroutine that waits does not disturb the hold of another on the same Locker"),
		flawed("renews after Unlock", "renewal ends with Unlock"),
		flawed("renews whatever is there", "a renewed hold that expired at a silent server stays lost"),
		flawed("believes what it knew", "a process that was stopped past its TTL knows when it wakes"),
		flawed("never expires", "the hold of a process that was killed expires"),
		flawed("a queue that the dead stay in", "a process that is stopped while it waits does not hold up those behind it"),
		flawed("a queue that the dead stay in", "a process that is killed while it waits does not hold up those behind it"),
	}
}

// outageMutants are naive locks that are good as long as their server is.
func outageMutants() []mutant {
	return []mutant{
		flawed("ErrHeld in an outage", "an outage is an error or a wait, never ErrHeld"),
		flawed("takes an error for a success", "an outage is an error or a wait, never ErrHeld"),
		flawed("TryLock says ErrHeld in an outage", "an outage is an error or a wait, never ErrHeld"),
		flawed("believes what it knew", "a hold ends in time though the server is down"),
		flawed("connects once", "the lock can be taken after a restart"),
		flawed("holds are not kept", "a hold lasts though the server restarts with its data"),
		flawed("tokens are counted in memory", "tokens rise though the server restarts with its data"),
		flawed("grants though it has lost its data", "a hold lasts though the server loses its data"),
		flawed("tokens are counted", "tokens rise though the server loses its data"),
		flawed("an asynchronous replica", "a hold lasts though the server that lags most takes over"),
		flawed("tokens are counted, and replicated later", "tokens rise though the server that lags most takes over"),
		flawed("an asynchronous replica, and Unlock is content with nothing", "Unlock never says nil if a failover forgot the hold"),
		flawed("an asynchronous replica, and what is sent again was done", "an Unlock that is sent again never says nil if a failover forgot the hold"),
		flawed("expires by the wall clock", "a hold lasts though the server's clock jumps forward"),
		flawed("expires by the wall clock", "a hold expires though the server's clock jumps back"),
		flawed("tokens are the time", "tokens rise though the server's clock jumps back"),
		flawed("tokens are forgotten after a minute", "tokens rise though the server's clock was days ahead for a while"),
		flawed("Extend sets what is gone", "a hold that was ended behind its holder's back is lost"),
		flawed("Unlock is content with nothing", "a hold that was ended behind its holder's back is lost"),
		flawed("a queue that the dead stay in", "a waiter gets a lock that was taken from its holder"),
	}
}

// networkMutants are naive locks that are good as long as the network is.
func networkMutants() []mutant {
	return []mutant{
		flawed("SETNX, then EXPIRE", "a take whose reply was lost leaves nothing behind"),
		flawed("an owner for each try", "a Lock whose replies are lost for a while is not held up by itself"),
		flawed("Unlock does not look at its answer", "an Unlock whose reply was lost has freed the lock"),
		flawed("an Unlock that fails leaves the hold", "an Unlock whose reply was lost has freed the lock"),
		flawed("what was released is not held", "a release that is sent again says nil or ErrLost, and frees the lock"),
		flawed("what is sent again was done", "a release that is sent again never says nil if the hold had ended"),
		flawed("an Extend that fails ends the hold", "an Extend whose reply was lost leaves the hold as it was"),
		flawed("SETNX, then EXPIRE, with all that helps but one step", "a take that breaks off between its requests leaves nothing behind for longer than its TTL"),
		flawed("an owner for each try, and patience", "a Lock whose first reply was lost does not wait for its own TTL to end"),
		flawed("renewal ends at its first error", "a renewed hold outlives a renewal that fails"),
		flawed("a connection for each question", "a renewed hold lasts, and can be unlocked, though no new connection can be made"),
		flawed("leaves one silent connection at a time", "connections that fall silent are left for new ones within a TTL"),
		flawed("the first question heeds no ctx", "the first Lock of a process returns soon after ctx ends, after whichever request the server falls silent"),
		flawed("believes what it knew", "a holder that is cut off knows in time, and harms nobody when it is back"),
		flawed("SETNX, then EXPIRE", "a take that arrives late leaves nothing behind"),
		flawed("SETNX, then EXPIRE, with clean-up", "a take that arrives late leaves nothing behind"),
		flawed("a take is granted however late", "a take that arrives more than a TTL late takes nothing"),
		flawed("looks, then takes, however late", "a take that arrives more than a TTL late takes nothing"),
		flawed("deletes whatever is there", "an Unlock that arrives late leaves the new hold alone"),
		flawed("looks and deletes, back to back", "an Unlock that arrives late leaves the new hold alone"),
		flawed("looks and deletes, back to back", "an Unlock that arrives late leaves the next hold of the same Locker alone"),
		flawed("looks and prolongs, back to back", "an Extend that arrives late leaves the new hold alone, and revives nothing"),
		flawed("Extend revives what expired", "an Extend that arrives late leaves the new hold alone, and revives nothing"),
		flawed("Extend sets what is gone", "an Extend that arrives late leaves the new hold alone, and revives nothing"),
		flawed("Extend counts before it is answered", "an Extend whose reply was lost leaves the hold as it was"),
		flawed("extends whatever is there", "an Extend that arrives late leaves the new hold alone, and revives nothing"),
		flawed("counts from the answer", "a hold that was granted over a slow link is over before another's begins"),
		flawed("mints after the take, and counts from then", "a hold that was granted over a slow link is over before another's begins"),
		flawed("owner is the Locker", "an Unlock that arrives late leaves the next hold of the same Locker alone"),
		flawed("a hold ends with its connection", "a hold outlives the connection that it was taken on"),
		{"an Extend that does not reach one server gives the lock back", "a hold goes on, or its loss is told, when one server does not answer an Extend", withThreeServers},
		{"an Extend that does not reach one server gives the lock back, without tokens", "a hold goes on, or its loss is told, when one server does not answer an Extend", withThreeServersAndNoTokens},
		flawed("any validity will do", "on a slow link Lock succeeds only with half its TTL left"),
		flawed("a queue that the dead stay in", "a waiter that is cut off does not hold up those behind it"),
		flawed("who is back has its turn", "a waiter that was cut off for longer than its TTL does not get the lock of another"),
		flawed("waits for an answer that was lost", "a waiter whose connections were broken is served, or told"),
	}
}
