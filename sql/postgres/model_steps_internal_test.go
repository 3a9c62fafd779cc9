package postgres

import "fmt"

// forget drops what makes no difference any more.
func (w *world) forget() {
	for i := range w.messages {
		m := &w.messages[i]
		if m.kind == none {
			continue
		}
		c := &w.clients[m.client]
		finished := c.claim != m.claim || c.phase == idle
		if finished && (m.answered || m.kind != toAsk && m.kind != toReclaim) || m.answered && c.phase == releasing && m.kind != toRelease {
			*m = message{}
		} else if m.answered {
			m.era, m.version, m.doubt, m.reclaims, m.heldEra, m.leaving = 0, 0, false, 0, 0, false
		}
	}
	if w.messages[0].kind < w.messages[1].kind {
		w.messages[0], w.messages[1] = w.messages[1], w.messages[0]
	}
}

func (e *explorer) fail(w *world, what string) { e.broken = fmt.Sprintf("%s: %+v", what, *w) }

func (*explorer) holds(w *world, i int8) bool {
	c := &w.clients[i]
	return c.phase == holding && w.now < c.deadline && w.ended&(1<<c.claim) == 0
}

// messages has each arrive. One that is lost is one that arrives when nobody waits for it any more,
// or never.
func (e *explorer) messages(w world) {
	for i, m := range w.messages {
		if m.kind == none {
			continue
		}
		next := w
		if m.answered {
			next.messages[i] = message{}
			e.reply(&next, m)
		} else {
			next.messages[i] = e.serve(&next, m)
		}
		e.explore(next)
	}
}

// send reports whether there was room for one more on the way.
func send(w *world, m message) bool {
	for i := range w.messages {
		if w.messages[i].kind == none {
			m.sent = w.now
			w.messages[i] = m
			return true
		}
	}
	return false
}

// client lets a client do what it may do next.
func (e *explorer) client(w world, i int8) {
	do := func(f func(next *world, c *modelClient) bool) {
		next := w
		if f(&next, &next.clients[i]) {
			e.explore(next)
		}
	}
	request := func(kind modelKind) func(*world, *modelClient) bool {
		return func(next *world, c *modelClient) bool {
			return send(next, message{kind: kind, client: i, claim: c.claim, era: c.era, version: c.version, token: c.token, doubt: c.doubt, reclaims: c.reclaims})
		}
	}
	c := w.clients[i]
	for _, m := range w.messages {
		if m.kind != none && m.client == i && m.claim == c.claim && m.kind != toRelease && c.phase != releasing {
			// One request at a time. A claim that has none to wait for any more may give up.
			if c.phase == asking {
				do(func(_ *world, c *modelClient) bool { c.phase = releasing; return true })
			}
			if c.phase == holding {
				do(func(_ *world, c *modelClient) bool { c.phase = releasing; return true })
			}
			return
		}
	}
	switch c.phase {
	case idle:
		if c.claim < 2 { // one claim each
			do(func(_ *world, c *modelClient) bool { c.phase = asking; c.claim += 2; return true })
		}
	case asking:
		if c.era == 0 {
			do(request(toEnter))
			return
		}
		do(func(next *world, c *modelClient) bool { c.doubt = true; return request(toAsk)(next, c) })
		do(func(_ *world, c *modelClient) bool { c.phase = releasing; return true })
	case holding:
		if w.now >= c.deadline && !e.lateReclaim {
			do(func(_ *world, c *modelClient) bool { c.over(); return true })
			return
		}
		switch {
		case !c.missing:
			do(request(toExtend))
		case c.era == 0:
			do(request(toEnter))
		case c.era != c.heldEra:
			do(func(next *world, c *modelClient) bool { c.reclaims = c.era; return request(toReclaim)(next, c) })
		}
		do(func(_ *world, c *modelClient) bool { c.phase = releasing; return true })
	case releasing:
		if !c.doubt && c.heldEra == 0 { // there is nothing
			do(func(_ *world, c *modelClient) bool { c.over(); return true })
			return
		}
		do(func(next *world, c *modelClient) bool {
			sent := send(next, message{
				kind: toRelease, client: i, claim: c.claim, era: c.era, version: c.version, token: c.token,
				doubt: c.doubt, reclaims: c.reclaims, heldEra: c.heldEra, leaving: c.leaving,
			})
			c.leaving = true
			return sent
		})
	}
}

// serve is what the server does with a request. It returns the reply.
func (e *explorer) serve(w *world, m message) message {
	s := &w.servers[w.clients[m.client].server]
	clock, row := w.now+s.clock, &s.row
	held := row.there && row.expires > clock
	ours := held && row.owner == m.claim
	m.answered = true
	m.newEra, m.newVer = s.era, row.version
	gone := w.released&(1<<m.claim) != 0
	forced := s.forced&(1<<m.claim) != 0 && !e.forgetForced
	mint := func(least int16) int16 {
		token := least + 1
		if !e.countTokens {
			token = max(token, int16(clock)*modelTokens)
		}
		if token <= w.highest {
			e.fail(w, "a token has not risen")
		}
		w.highest = token
		return token
	}
	switch m.kind {
	case none:
	case toEnter:
		if s.era == 0 {
			s.era, s.base = nextEra(w), 0
			s.graceEnd = clock + s.longest
		}
		if !e.graceFromNothing {
			s.longest = modelTTL
		}
		m.newEra, m.newVer, m.ok = s.era, s.base, true
	case toAsk:
		if !row.there && s.era == m.era && s.era != 0 && (clock >= s.graceEnd || e.noGrace) {
			*row = modelRow{there: true, era: s.era, version: s.base, token: s.floor}
		}
		m.missing = !row.there
		m.newVer = row.version
		if row.there && (row.era == m.era || e.takeOtherEra) && row.version == m.version && (!held || ours) {
			if gone {
				e.fail(w, "a take that arrives after its release was answered takes")
			}
			if !ours {
				row.token = mint(row.token)
			}
			row.owner, row.expires, m.ok, m.token = m.claim, clock+modelTTL, true, row.token
			m.newEra = row.era
		}
	case toExtend:
		if m.ok = ours; ours {
			row.expires = clock + modelTTL
		}
		m.missing = !row.there
	case toReclaim:
		valid := e.holds(w, m.client) && w.clients[m.client].claim == m.claim
		inGrace := clock < s.graceEnd && s.era == m.era
		accept := (clock < s.graceEnd || e.reclaimAfter) && (s.era == m.era || e.reclaimOtherEra && s.era != 0)
		if accept && !forced && (!row.there || row.owner == 0 || row.token < m.token || e.reclaimOverwrite) {
			if gone {
				e.fail(w, "a reclaim that arrives after its release was answered takes")
			}
			if w.ended&(1<<m.claim) != 0 {
				e.fail(w, "a hold that was ended by force is reclaimed")
			}
			version := s.base
			if row.there {
				version = row.version
			}
			*row = modelRow{there: true, era: s.era, version: version, token: m.token, owner: m.claim}
			ours = true
		}
		if m.ok = ours; ours {
			row.expires = clock + modelTTL
		} else if valid && inGrace {
			e.fail(w, "a hold does not survive")
		}
	case toRelease:
		if ours {
			row.expires = 0
		}
		if m.doubt && row.there && row.era == m.era && !e.keepVersion {
			row.version = max(row.version, m.version+1)
		}
		if m.doubt && !row.there && s.era == m.era && !e.noPlaceholder { // not free before the grace is over
			*row = modelRow{there: true, era: s.era, version: s.base + 1, token: s.floor, expires: s.graceEnd}
		}
		// The row was lost. The client reclaims its hold, and releases it at once. It does not if
		// an earlier release may have given the lock to another.
		lost := m.heldEra != 0 && m.heldEra != s.era && w.clients[m.client].claim == m.claim && (w.now < w.clients[m.client].deadline || e.lateReclaim)
		if !forced && (m.reclaims == s.era || lost && (!m.leaving || e.releaseAgain)) && (!row.there || row.owner == 0 || row.token < m.token) && s.era != 0 && (s.era == m.era || lost) && clock < s.graceEnd && !e.noTombstone {
			*row = modelRow{there: true, era: s.era, version: max(s.base, row.version), token: m.token, owner: m.claim}
		}
		m.ok = true
	}
	return m
}

func nextEra(w *world) int8 {
	return max(w.servers[0].era, w.servers[1].era, w.clients[0].era, w.clients[1].era, w.clients[0].heldEra, w.clients[1].heldEra, w.messages[0].era, w.messages[1].era) + 1
}

// reply is what a client makes of an answer.
func (e *explorer) reply(w *world, m message) {
	c := &w.clients[m.client]
	if c.claim != m.claim {
		return
	}
	begin := m.sent
	if e.fromReply {
		begin = w.now
	}
	switch {
	case m.kind == toEnter:
		c.era, c.version = m.newEra, m.newVer
	case m.kind == toRelease && c.phase == releasing:
		w.released |= 1 << m.claim
		c.over()
	case m.kind == toAsk && c.phase == asking && m.ok:
		if w.now < begin+modelTTL {
			c.phase, c.deadline, c.token, c.heldEra, c.doubt = holding, begin+modelTTL, m.token, m.newEra, false
		}
	case m.kind == toAsk && c.phase == asking:
		c.doubt = false
		if m.newEra != c.era {
			c.era = 0
		} else if !m.missing {
			c.version = m.newVer
		}
	case m.kind == toExtend && c.phase == holding:
		c.missing = m.missing
		switch {
		case m.ok:
			c.deadline = max(c.deadline, begin+modelTTL)
		case m.missing && m.newEra != c.heldEra: // the table was lost
			c.era = 0
		default:
			c.over()
		}
	case m.kind == toReclaim && c.phase == holding && m.ok:
		c.deadline = max(c.deadline, begin+modelTTL)
		c.missing, c.heldEra = false, c.era
	case m.kind == toReclaim && c.phase == holding:
		if m.newEra != c.era { // lost once more
			c.era = 0
		} else {
			c.over()
		}
	}
}
