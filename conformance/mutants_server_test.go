package conformance_test

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// flawed is a lock of a server with a flaw: of its store, of its Driver, or one of alterations.
func flawed(flaw, killer string) mutant {
	return mutant{flaw, killer, func() conformance.Harness { return served(flaw) }}
}

// alterations are the flaws that are the Locker's own.
var alterations = map[string]func(*patched){
	"believes what it knew":         func(p *patched) { overdue(1000)(p, nil) },
	"counts from the answer":        countsFromTheAnswer,
	"what was released is not held": func(p *patched) { instead(&p.unlock, locker.ErrLost, locker.ErrNotHeld) },
	"RLock ignores its ctx":         func(p *patched) { heedless(&p.rlock) },
	"Extend heeds no limit":         func(p *patched) { heedless(&p.extend) },
	"any validity will do": func(p *patched) {
		p.deadline = func() time.Time { return told(p.RWMutex).Deadline().Add(-p.ttl) }
	},
	"an upgrade waits for itself":       func(p *patched) { stays(&p.lock, func(err error) bool { return errors.Is(err, locker.ErrUpgrade) }) },
	"waits for an answer that was lost": func(p *patched) { stays(&p.lock, unanswered); stays(&p.rlock, unanswered) },
	"an Extend that fails ends the hold": func(p *patched) {
		after(&p.extend, func(_ context.Context, err error) error {
			if err != nil {
				return errors.Join(locker.ErrLost, err)
			}
			return nil
		})
	},
	"who is back has its turn": func(p *patched) {
		after(&p.lock, func(ctx context.Context, err error) error {
			for err != nil && unanswered(err) && ctx.Err() == nil {
				err = p.Mutex.Lock(ctx)
			}
			return err
		})
	},
	"deletes whatever is there": func(p *patched) {
		inPlaceOf(&p.unlock, func() { p.ask(question{Op: "delete"}) }, locker.ErrLost, locker.ErrNotHeld)
	},
	"extends whatever is there": func(p *patched) {
		inPlaceOf(&p.extend, func() { p.ask(question{Op: "prolong", TTL: p.ttl}) }, locker.ErrLost)
	},
	"a release is a count": func(p *patched) {
		inPlaceOf(&p.unlock, func() { p.ask(question{Op: "release", Shared: true}) }, locker.ErrNotHeld, locker.ErrLost)
	},
	"a downgrade checks no owner": func(p *patched) {
		inPlaceOf(&p.downgrade, func() { p.ask(question{Op: "downgrade"}) }, locker.ErrLost)
	},
	"Extend says nil of a share that ended": func(p *patched) { instead(&p.extend, locker.ErrLost, nil) },
	"Extend revives a share that ended":     func(p *patched) { p.anew(&p.extend, p.TryRLock) },
	"Extend counts before it is answered": func(p *patched) {
		extended := false
		before(&p.extend, func() { extended = true })
		p.deadline = func() time.Time {
			if extended {
				return told(p.RWMutex).Deadline().Add(p.ttl / 2)
			}
			return told(p.RWMutex).Deadline()
		}
	},
}

// heedless has a method ignore its ctx.
func heedless(m *method) {
	inner := *m
	*m = func(ctx context.Context) error { return inner(context.WithoutCancel(ctx)) }
}

// stays has a method that returns some errors wait until ctx ends.
func stays(m *method, some func(error) bool) {
	after(m, func(ctx context.Context, err error) error {
		if err != nil && some(err) {
			<-ctx.Done()
			return errors.Join(ctx.Err(), context.Cause(ctx))
		}
		return err
	})
}

func unanswered(err error) bool {
	return !errors.Is(err, locker.ErrHeld) && !errors.Is(err, locker.ErrLost)
}

// inPlaceOf does something where a method returns one of some errors, which it returns no more
// unless it is ErrNotHeld.
func inPlaceOf(m *method, do func(), some ...error) {
	after(m, func(_ context.Context, err error) error {
		for _, one := range some {
			if errors.Is(err, one) {
				do()
			}
		}
		return err
	})
}

// countsFromTheAnswer believes in a hold for one TTL from when Lock returned.
func countsFromTheAnswer(p *patched) {
	var until time.Time
	var last uint64
	after(&p.lock, func(_ context.Context, err error) error {
		if err == nil {
			last, until = p.RWMutex.FencingToken(), time.Now().Add(p.ttl)
		}
		return err
	})
	p.token = func() uint64 {
		if time.Now().Before(until) {
			return last
		}
		return 0
	}
}

const refusals = "what the server refuses is not granted, extended or released"

// serverMutants are killed by the scenarios named beside them: a list of flaws, each with its
// killer.
func serverMutants() (all []mutant) {
	const (
		whatever = "deletes whatever is there"
		setnx    = "SETNX, then EXPIRE"
		uneven   = "a TTL that is no round number is kept as it is"
		anytime  = "a Lock cancelled at any moment leaves nothing behind"
		lasts    = "an extended hold lasts one TTL from its Extend, and no longer"
		ahead    = "an outage is an error or a wait, never ErrHeld"
		lateEnd  = "an Unlock that arrives late leaves the new hold alone"
		lateMore = "an Extend that arrives late leaves the new hold alone, and revives nothing"
		slowly   = "a hold that was granted over a slow link is over before another's begins"
		takeLate = "a take that arrives late leaves nothing behind"
		revoked  = "a hold that was ended behind its holder's back is lost"
		dead     = "a queue that the dead stay in"
		again    = "what is sent again was done"
		believes = "believes what it knew"
		atCtx    = " returns soon after ctx ends though the server is silent"
		byThen   = "Unlock returns by the deadline though the server is silent"
		refused  = "a writer that was refused keeps readers out until it gives up"
		shared   = "shares held at the same time have one token, between those of the writers"
		ownTTL   = "a share expires after its own TTL though others extend theirs"
		knows    = "a share that expired is lost, and its holder knows"
		endless  = "a share never expires"
		readers  = "a random history of readers and writers is that of one read-write lock"
		though   = oneHistory + " though "
		rise     = "tokens of a random history rise though "
	)
	for _, m := range [][2]string{
		{"owner is the process", "a held lock is not granted to another process"},
		{"owner is the client", "a held lock is not granted to the same client"},
		{"no clean-up", anytime},
		{setnx, anytime},
		{"TTL in whole seconds", "a hold expires after its TTL"},
		{"never expires", "a hold expires after its TTL"},
		{"expires early", "a hold does not expire before its TTL"},
		{"expires one TTL late", "a waiter wakes when the holder has crashed"},
		{"a refused take prolongs the hold", "a waiter wakes when the holder has crashed"},
		{"TTL in tenths of a second", uneven},
		{"TTL in multiples of the shortest", uneven},
		{"a TTL of ten seconds at most", "a long TTL is kept as it is"},
		{"TTL in milliseconds of 32 bits, with a sign", "a long TTL is kept as it is"},
		{"TTL in milliseconds of 32 bits", "a long TTL is kept as it is"},
		{"TTL in microseconds of 32 bits", "a long TTL is kept as it is"},
		{"Extend says nil and does nothing", "Extend keeps a hold past its TTL"},
		{"Extend counts from the old deadline", lasts},
		{"Extend in whole seconds", lasts},
		{"Extend shortens", lasts},
		{"looks once a TTL", "a waiter wakes when the holder unlocks"},
		{"tokens have eleven digits", "tokens rise from process to process"},
		{"tokens are compared as strings", "tokens rise in the order of the holds, with many contending"},
		{"Extend says nil and does nothing", "a renewed hold outlives its TTL"},
		{"renewal ends after ten times", "a renewed hold outlives its TTL"},
		{"renews the first hold alone", "a renewed hold outlives its TTL"},
		{"renews nothing that TryLock took", "a renewed hold outlives its TTL"},
		{"renews after Unlock", "renewal ends with Unlock"},
		{whatever, "Unlock after a take-over leaves the new hold alone"},
		{whatever, "Unlock of one Locker leaves the holds of others alone"},
		{"looks, then deletes", "an Unlock overtaken by the expiry leaves the new hold alone"},
		{"extends whatever is there", "Extend after a take-over leaves the new hold alone"},

		// At a server that is silent, or of a process that is stopped or killed.
		{"a Driver's Ask, of a Lock, ignores contexts", "Lock" + atCtx},
		{"a Driver's Ask, of a TryLock, ignores contexts", "TryLock" + atCtx},
		{"a Driver's Extend ignores contexts", "Extend" + atCtx},
		{"a Driver's Release ignores contexts", "Unlock" + atCtx},
		{"a Driver's Release ignores contexts", byThen},
		{believes, "a renewed hold that expired at a silent server stays lost"},
		{believes, "a process that was stopped past its TTL knows when it wakes"},
		{"never expires", "the hold of a process that was killed expires"},
		{dead, "a process that is stopped while it waits does not hold up those behind it"},
		{dead, "a process that is killed while it waits does not hold up those behind it"},

		// In an outage, or when a server comes back.
		{"ErrHeld in an outage", ahead},
		{"takes an error for a success", ahead},
		{`an error reply to "take" counts as OK`, refusals},
		{`an error reply to "extend" counts as OK`, refusals},
		{`an error reply to "release" counts as OK`, refusals},
		{"ErrHeld in an outage", refusals},
		{"TryLock says ErrHeld in an outage", ahead},
		{believes, "a hold ends in time though the server is down"},
		{"connects once", "the lock can be taken after a restart"},
		{"holds are not kept", "a hold lasts though the server restarts with its data"},
		{"tokens are counted in memory", "tokens rise though the server restarts with its data"},
		{"grants though it has lost its data", "a hold lasts though the server loses its data"},
		{"tokens are counted", "tokens rise though the server loses its data"},
		{"an asynchronous replica", "a hold lasts though the server that lags most takes over"},
		{"tokens are counted, and replicated later", "tokens rise though the server that lags most takes over"},
		{"an asynchronous replica, and Unlock is content with nothing", "Unlock never says nil if a failover forgot the hold"},
		{"an asynchronous replica, and " + again, "an Unlock that is sent again never says nil if a failover forgot the hold"},
		{"expires by the wall clock", "a hold lasts though the server's clock jumps forward"},
		{"expires by the wall clock", "a hold expires though the server's clock jumps back"},
		{"tokens are the time", "tokens rise though the server's clock jumps back"},
		{"tokens are forgotten after a minute", "tokens rise though the server's clock was days ahead for a while"},
		{"Extend sets what is gone", revoked},
		{"Unlock is content with nothing", revoked},
		{"a revocation wakes nobody", "a waiter gets a lock that was taken from its holder"},

		// On a network that loses and delays.
		{setnx, "a take whose reply was lost leaves nothing behind"},
		{"waits for an answer that was lost", "a Lock whose replies are lost for a while is not held up by itself"},
		{"an owner for each try", "a Lock whose first reply was lost does not wait for its own TTL to end"},
		{"Unlock does not look at its answer", "an Unlock whose reply was lost has freed the lock"},
		{"what was released is not held", "a release that is sent again says nil or ErrLost, and frees the lock"},
		{again, "a release that is sent again never says nil if the hold had ended"},
		{"an Extend that fails ends the hold", "an Extend whose reply was lost leaves the hold as it was"},
		{"Extend counts before it is answered", "an Extend whose reply was lost leaves the hold as it was"},
		{setnx + ", with all that helps but one step", "a take that breaks off between its requests leaves nothing behind for longer than its TTL"},
		{"renewal ends at its first error", "a renewed hold outlives a renewal that fails"},
		{"a connection for each question", "a renewed hold lasts, and can be unlocked, though no new connection can be made"},
		{"leaves one silent connection at a time", "connections that fall silent are left for new ones within a TTL"},
		{"the first question heeds no ctx", "the first Lock of a process returns soon after ctx ends, after whichever request the server falls silent"},
		{believes, "a holder that is cut off knows in time, and harms nobody when it is back"},
		{setnx, takeLate},
		{setnx + ", with clean-up", takeLate},
		{"a take is granted however late", "a take that arrives more than a TTL late takes nothing"},
		{whatever, lateEnd},
		{"looks and deletes, back to back", lateEnd},
		{"looks and deletes, back to back", "an Unlock that arrives late leaves the next hold of the same Locker alone"},
		{"owner is the client", "an Unlock that arrives late leaves the next hold of the same Locker alone"},
		{"looks and prolongs, back to back", lateMore},
		{"Extend revives what expired", lateMore},
		{"Extend sets what is gone", lateMore},
		{"extends whatever is there", lateMore},
		{"counts from the answer", slowly},
		{"any validity will do", "on a slow link Lock succeeds only with half its TTL left"},
		{"a hold ends with its connection", "a hold outlives the connection that it was taken on"},
		{dead, "a waiter that is cut off does not hold up those behind it"},
		{"who is back has its turn", "a waiter that was cut off for longer than its TTL does not get the lock of another"},
		{"waits for an answer that was lost", "a waiter whose connections were broken is served, or told"},

		// In a random history with faults.
		{believes, though + "servers are silent"},
		{"a hold ends with its connection", though + "clients are cut off"},
		{believes, though + "processes are stopped"},
		{believes, though + "faults of all kinds come and go"},
		{"a hold ends with its connection", though + "faults of all kinds come and go"},
		{"Extend sets what is gone", rise + "holds are revoked"},
		{"holds are not kept", though + "servers crash"},
		{"tokens are counted in memory", though + "servers crash"},
		{"grants though it has lost its data", though + "servers lose their data"},
		{"tokens are counted", rise + "servers lose their data"},
		{"an asynchronous replica", though + "another server takes over"},
		{"tokens are counted, and replicated later", rise + "another server takes over"},
		{"expires by the wall clock", though + "the server's clock jumps"},
		{"tokens are the time", though + "the server's clock jumps"},

		// Of shares.
		{"readers exclude each other", "readers share the lock"},
		{"at most five readers", "readers share the lock"},
		{"a writer comes in beside readers", "readers keep a writer out until the last of them has gone"},
		{"the last reader wakes no writer", "readers keep a writer out until the last of them has gone"},
		{"readers come in beside a writer", "a writer keeps readers out"},
		{"a token for each reader", shared},
		{"another token from the fifth reader on", shared},
		{"the next writer has the readers' token", shared},
		{"a release is a count", "readers keep a writer out until the last of them has gone"},
		{"a release is a count", "a share expires after its own TTL though others extend theirs"},
		{"one TTL for all readers", ownTTL},
		{"an Extend cuts the shares of others", ownTTL},
		{endless, knows},
		{"Extend says nil of a share that ended", knows},
		{"Extend revives a share that ended", knows},
		{"an upgrade waits for itself", "an upgrade is refused at once, and the share stays"},
		{"a downgrade has a new token", "a downgrade keeps the hold and its token"},
		{"a downgrade cuts the TTL", "a downgrade keeps the hold and its token"},
		{"a downgrade checks no owner", "a downgrade of a lost hold says ErrLost, and leaves the new hold alone"},
		{"a downgrade wakes nobody", "a downgrade lets readers in and keeps writers out"},
		{"a downgrade is a release and a take", "a downgrade lets no writer in between"},
		{"of a run of readers an expiry lets in the first", "a writer's expiry lets in all readers that wait"},
		{"a writer that gives up wakes nobody", "a writer that gives up lets in the readers behind it"},
		{"a reader that gives up takes its neighbours along", "a reader that gives up leaves nothing behind"},
		{"a reader that gives up keeps its place", "a reader that gives up leaves nothing behind"},
		{"one writer in thirty comes in beside readers", readers},
		{"one token in thirty is the reader's own", readers},
		{"a downgrade is a release and a take", readers},

		// Of shares, with faults.
		{refused, "a TryLock that fails keeps no reader out"},
		{dead, "a writer that is killed while it waits does not hold up the readers behind it"},
		{dead, "a writer that is stopped while it waits does not hold up the readers behind it"},
		{"a downgrade that is sent again is refused", "a downgrade whose reply was lost can be sent again"},
		{"tokens are counted, and replicated later", "tokens rise from a writer to a share though the server that lags most takes over"},
		{endless, "a share whose reply was lost leaves nothing behind"},
		{"waits for an answer that was lost", "an RLock whose replies are lost for a while is not held up by itself"},
		{"Unlock does not look at its answer", "an Unlock of a share whose reply was lost has freed the lock"},
		{"what was released is not held", "a release of a share that is sent again frees the lock"},
		{"a release that is sent again ends a share of another's", "a release of a share that is sent again frees the lock"},
		{again, "a release that is sent again never says nil if the share had ended"},
		{"an Extend that fails ends the hold", "an Extend of a share whose reply was lost leaves it as it was"},
		{"Extend counts before it is answered", "an Extend of a share whose reply was lost leaves it as it was"},
		{endless, "a request for a share that arrives late leaves nothing behind"},
		{"a take is granted however late", "a request for a share that arrives more than a TTL late takes nothing"},
		{"a release is a count", "an Unlock of a share that arrives late leaves the writer alone"},
		{"owner is the client", "an Unlock of a share that arrives late leaves the next share alone"},
		{"Extend sets what is gone", "an Extend of a share that arrives late leaves the writer alone"},
		{believes, "a reader that is cut off knows in time, and harms nobody when it is back"},
		{dead, "a reader that waits and is cut off does not hold up those behind it"},
		{"RLock ignores its ctx", "RLock" + atCtx},
		{endless, "an RLock that ended while the server was silent leaves nothing behind"},
		{"a Driver's Release ignores contexts", "Unlock of a share returns by the deadline though the server is silent"},
		{believes, "a reader that was stopped past its TTL knows when it wakes"},
		{endless, "the share of a process that was killed expires"},
		{dead, "a reader that is killed while it waits does not hold up those behind it"},
	} {
		all = append(all, flawed(m[0], m[1]))
	}
	for _, m := range [][2]string{
		{"readers are admitted while a writer is first", "readers that come after a waiting writer wait for it"},
		{"a writer waits until there was no reader for a while", "readers that overlap without end do not starve a writer"},
		{"of a run of readers only the first is woken", "a writer's Unlock lets in all readers up to the next writer"},
		{"readers are admitted while others are let in", "a writer's Unlock lets in all readers up to the next writer"},
		{"a reader waits until there was no writer for a while", "writers that come without end do not starve a reader"},
		{"a writer that gives up lets in all readers", "when a writer gives up, readers behind the next writer still wait"},
		{"asks who waits until there is no answer", "a holder whose connections break hears that somebody waits"},
	} {
		all = append(all, mutant{m[0], m[1], func() conformance.Harness { return promising(locker.Ordered, served(m[0])) }})
	}
	return append(all, thieves()...)
}

// moreServerMutants have a harness of their own.
func moreServerMutants() []mutant {
	const oneGone = "a hold goes on, or its loss is told, when one server does not answer an Extend"
	return []mutant{
		{"TTL in whole seconds, of which it has one", "a TTL that is no round number is kept as it is", func() conformance.Harness {
			h := served("TTL in whole seconds")
			h.TTL = time.Second
			return h
		}},
		{"a plain lock is another lock", "a plain lock of the name and shares exclude each other", func() conformance.Harness {
			h := served("")
			h.New = served("").New
			return h
		}},
		{"polls every 25 ms, and calls it woken", "a waiter sends next to nothing while nothing happens", func() conformance.Harness {
			return promising(locker.Woken, served("looks every 25 ms"))
		}},
		{"an Extend that does not reach one server gives the lock back", oneGone, func() conformance.Harness { return overThree(true) }},
		{"an Extend that does not reach one server gives the lock back, without tokens", oneGone, func() conformance.Harness { return overThree(false) }},
	}
}

// thieves take what another holds, who hears ErrLost at its Unlock, or before it.
func thieves() (all []mutant) {
	for _, flaw := range []string{"looks, and takes a little later", "one take in two hundred does not look"} {
		for who, alter := range map[string]func(*patched){
			"":                                func(*patched) {},
			", from those whom nothing tells": func(p *patched) { p.token = func() uint64 { return 0 } },
			", from those who are told":       asksForItsToken,
		} {
			for _, killer := range []string{"many processes exclude one another", oneHistory} {
				all = append(all, mutant{flaw + who, killer, func() conformance.Harness {
					s := newServer(flaw)
					s.alter = alter
					h := s.harness()
					h.Client = nil
					return h
				}})
			}
		}
	}
	return all
}

// asksForItsToken has a token of 0 as soon as another has the lock.
func asksForItsToken(p *patched) {
	p.token = func() uint64 {
		_ = p.RWMutex.Extend(context.Background()) // a hold that another has taken is lost
		return p.RWMutex.FencingToken()
	}
}

// silenced is a mutant whose Lockers are altered, at a server that can be silenced.
func silenced(flaw, killer string, change func(p *patched, s *server)) mutant {
	return mutant{flaw, killer, func() conformance.Harness {
		s := newServer("")
		s.alter = func(p *patched) { change(p, s) }
		return s.harness()
	}}
}

func silenceMutants() []mutant {
	const lost = "Lost fires in time though the server is silent"
	return []mutant{
		silenced("FencingToken asks the server", lost, func(p *patched, s *server) {
			p.token = func() uint64 {
				s.awaitSound()
				return p.RWMutex.FencingToken()
			}
		}),
		silenced("Lost waits for the server", lost, func(p *patched, s *server) {
			p.lost = func() <-chan struct{} { return later(told(p.RWMutex).Lost(), s.awaitSound) }
		}),
		silenced("a late request is applied for good", "a Lock that ended while the server was silent leaves nothing behind", func(p *patched, s *server) {
			after(&p.lock, func(ctx context.Context, err error) error {
				if ctx.Err() != nil {
					go func() {
						s.awaitSound()
						p.ask(question{Op: "seize", Owner: newOwner()})
					}()
				}
				return err
			})
		}),
	}
}

// later is closed when a channel is, and what has to be waited for then.
func later(inner <-chan struct{}, wait func()) <-chan struct{} {
	closed := make(chan struct{})
	go func() {
		<-inner
		wait()
		close(closed)
	}()
	return closed
}
