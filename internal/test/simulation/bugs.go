// Package simulation plays the core over simulated servers and networks, in virtual time. A seed
// decides all that happens.
package simulation

// Bug is one that the core had, or would have if a line of it were not there.
type Bug struct {
	Name     string
	Fix      string // the commit that fixed it; empty: nobody made the mistake yet
	File     string
	Old, New string // a line of the file, and the line with the bug
	missed   string // why no seed finds it
	first    uint64 // the first seed that is tried; 0: seed 1
}

// Bugs are those that TestBugs_areFound puts back.
var Bugs = []Bug{
	{
		"a renewal that is answered while Close waits for a function releases the hold", "bf4ab22", "hold.go",
		"if errors.Is(err, ErrLost) && !h.endedByClose(now) {", "if errors.Is(err, ErrLost) {", "", 0,
	},
	{
		"a release gives up shortly before the end of a session that goes on after all", "b1cc234", "release.go",
		"		pause = min(pause, left)\n", "		if pause >= left {\n			return false\n		}\n", "", 0,
	},
	{
		"Close does not wait for a function that is still returning", "14daa70", "release.go",
		"if !h.works() {", "if true {", "", 0,
	},
	{
		"a hold whose Extend had an unknown outcome is not released when it expires", "9256fd0", "release.go",
		"if h.extendInDoubt.Load() || h.goesOn(c.open)", "if h.goesOn(c.open)", "", 0,
	},
	{
		"the lease that a renewal left behind, answered too late, is not released", "9256fd0", "hold.go",
		"		h.client.spawn(h.cleanUp)\n	}\n	return err\n}\n\n// endedByClose", "	}\n	return err\n}\n\n// endedByClose",
		"the request has to be under way for two thirds of a TTL where nothing else goes wrong, and the lease expires soon after", 0,
	},
	{
		"a hold whose Unlock was not answered by the deadline is not released later, though its session goes on", "02e9d8e", "release.go",
		"clock.Now().Before(r.deadline) || r.hold.goesOn(life)", "clock.Now().Before(r.deadline)", "", 0,
	},
	{
		"a hold is not released if its session is heard of again just before it would end", "526b29f8", "release.go",
		"		_ = clock.Sleep(life, left)\n		left = h.lease.Validity()\n", "		left = 0\n", "", 184000,
	},
	{
		"a hold that expires on a session that goes on is not released", "", "hold.go",
		"	if why == CauseExpired {\n		h.cleanUpAfter(clock.Now())\n	}\n", "", "", 0,
	},
	{
		"the turn of a waiter on its Mutex is lost when its context ends", "", "mutex.go",
		"	} else if <-turn == nil {\n		m.passTurn()\n	}", "	} else {\n		<-turn\n	}",
		"the turn has to come in the instant in which the context ends, and a seed has hardly two things at one instant", 0,
	},
	{
		"a Lock that fails does not hand over its turn", "17e782f", "mutex.go",
		"			m.passTurn()\n		}\n	}()", "		}\n	}()", "", 0,
	},
	{
		"a Lock fails because the connection of its first request was broken", "e04c1eb", "acquire.go",
		"firstTries    = 3", "firstTries    = 1", "", 0,
	},
	{
		"a hold on a session without recent answers is renewed again and again, without a pause", "cc292d7", "renew.go",
		"if soonest := now.Add(deadline.Sub(now) / 4); capped && due.Before(soonest) {", "if soonest := now; false {\n\t\t_ = capped",
		"what slows down renewals has two guards, and this is one: a renewal that is due at once waits for TTL/24 all the same", 0,
	},
	{
		"a renewal that is answered late does not count", "21ce82f", "renew.go",
		"newRequest(context.Background(), c.background, ttl*(renewalsPerTTL-1)/renewalsPerTTL)", "newRequest(context.Background(), c.background, ttl/20)", "", 0,
	},
	{
		"an Unlock whose context has ended releases only after a pause", "7c3518a", "release.go",
		"if r.tries > 0 && !r.rest(life, &last) {", "if !r.rest(life, &last) {", "", 0,
	},
	{
		"a Lock gives up after a grant that came too late", "004c1a6", "acquire.go",
		"			_ = c.abandon(h, err)\n			h, claim = c.newClaim()\n			fallthrough", "			return nil, c.abandon(h, err)", "", 0,
	},
	{
		"a grant that came too late is taken", "", "hold.go",
		"if left < h.ttl/2 {", "if left < 0 {", "", 0,
	},
	{
		"deadlines have no allowance for clocks that drift", "", "acquire.go",
		"return left - drift(ttl), capped", "return left, capped", "", 0,
	},
	{
		"a loss is reported late", "592b069", "hold.go",
		"	next := h.deadline\n", "	next := h.deadline.Add(h.ttl / 16)\n", "", 0,
	},
	{
		"the lease or place that a failed attempt left behind is not released", "d8c9030", "acquire.go",
		"	c.mutex.client.spawn(h.cleanUp)\n	return err", "	return err", "", 0,
	},
	{
		"a wait that ends keeps its place in the queue", "", "acquire.go",
		"		h.cleanUp()\n		close(left)", "		close(left)", "", 0,
	},
	{
		"a release is tried only once", "", "release.go",
		"		if r.try(patience) {\n			return true\n		}", "		return r.try(patience)", "", 0,
	},
}
