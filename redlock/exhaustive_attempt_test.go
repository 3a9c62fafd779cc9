package redlock

func (x *exploration) visitAttempt(s *exState, a int) {
	at := &s.attempts[a]
	switch at.phase {
	case idle:
		if s.attempts[a-1].phase == over {
			x.step(s, func(s *exState) { s.begin(a) })
		}
		return
	case asking, holding: // until it is done, or its time is
		x.step(s, func(s *exState) { x.end(s, a) })
	}
	for i := range at.net {
		x.visitNet(s, a, i)
	}
}

// visitNet delivers what is under way between an attempt and a node.
func (x *exploration) visitNet(s *exState, a, i int) {
	net := s.attempts[a].net[i]
	deliver := func(underWay bool, f func(s *exState, at *exAttempt, net *exNet, node *register)) {
		if underWay {
			x.step(s, func(s *exState) {
				at := &s.attempts[a]
				f(s, at, &at.net[i], &s.nodes[i])
			})
		}
	}
	take := func(node *register) (bool, uint64) { return node.take(0, x.owner(a), 1, x.proposals[a]) }
	deliver(net.take, func(s *exState, _ *exAttempt, net *exNet, node *register) {
		net.take, net.answer = false, no
		var ok bool
		if ok, net.token = take(node); ok {
			net.answer = yes
		}
	})
	deliver(net.take && s.doubles > 0, func(s *exState, _ *exAttempt, net *exNet, _ *register) {
		s.doubles--
		net.takeAgain = true
	})
	deliver(net.takeAgain, func(_ *exState, _ *exAttempt, net *exNet, node *register) {
		net.takeAgain = false
		take(node)
	})
	deliver(net.answer != none, func(s *exState, _ *exAttempt, _ *exNet, _ *register) { x.answered(s, a, i) })
	deliver(net.raise, func(_ *exState, _ *exAttempt, net *exNet, node *register) {
		net.raise, net.raised = false, no
		switch far := node.tooFar(net.goal); {
		case node.raise(0, x.owner(a), net.goal):
			net.raised = yes
		case far && node.owner == x.owner(a) && node.left(0):
			net.raised = tooFar
		}
	})
	deliver(net.raise && s.doubles > 0, func(s *exState, _ *exAttempt, net *exNet, _ *register) {
		s.doubles--
		net.raiseAgain = true
	})
	deliver(net.raiseAgain, func(_ *exState, _ *exAttempt, net *exNet, node *register) {
		net.raiseAgain = false
		node.raise(0, x.owner(a), net.goal)
	})
	deliver(net.raised != none, func(s *exState, _ *exAttempt, _ *exNet, _ *register) { x.raised(s, a, i) })
	deliver(net.release, func(_ *exState, _ *exAttempt, net *exNet, node *register) {
		net.release = false
		node.release(0, x.owner(a), net.token, false)
	})
	if at := &s.attempts[a]; at.phase == asking && s.silences > 0 && at.votes[i].state == asked {
		x.step(s, func(s *exState) {
			s.silences--
			x.vote(s, a, func(b *ballot) { b.says(i, absent) })
		})
	}
}

// vote changes the ballot of an attempt, sends the raises that follow, and ends the attempt if it is decided.
func (x *exploration) vote(s *exState, a int, change func(*ballot)) {
	at := &s.attempts[a]
	b := ballot{goal: at.goal, votes: at.votes[:]}
	change(&b)
	raise := b.raise
	if x.relax.raiseUnchecked {
		raise = func() []int { return raiseAll(&b) }
	}
	for _, i := range raise() {
		if x.relax.countTogether {
			b.granted(i, b.goal)
			continue
		}
		at.net[i].raise, at.net[i].goal = true, b.goal
	}
	outcome := b.outcome()
	if x.relax.acceptWithoutLock {
		outcome = countApart(&b, func(i int) uint64 { return at.net[i].token })
	}
	at.goal = b.goal
	switch outcome {
	case won:
		x.win(s, a)
	case denied, failed:
		x.end(s, a)
	}
}

func (x *exploration) answered(s *exState, a, i int) {
	at := &s.attempts[a]
	net := &at.net[i]
	ok := net.answer == yes
	net.answer = none
	net.ours = ok
	if at.phase == over {
		net.release = ok
		return
	}
	if at.phase == asking {
		x.vote(s, a, func(b *ballot) {
			if ok {
				b.granted(i, net.token)
			} else {
				b.says(i, refused)
			}
		})
	}
}

func (x *exploration) raised(s *exState, a, i int) {
	at := &s.attempts[a]
	answer, goal := at.net[i].raised, at.net[i].goal
	at.net[i].raised = none
	if at.phase == asking {
		x.vote(s, a, func(b *ballot) {
			switch answer {
			case yes:
				b.granted(i, goal)
			case tooFar:
				b.refusedGoal(i, goal)
			default:
				b.says(i, gone)
			}
		})
	}
}

func (x *exploration) win(s *exState, a int) {
	at := &s.attempts[a]
	for other := range s.attempts {
		if s.attempts[other].phase == holding {
			x.violations++
			break
		}
	}
	if at.goal <= s.largest {
		x.violations++
	}
	s.largest = max(s.largest, at.goal)
	at.phase = holding
}

// end releases at the nodes that have told of their lock; the others are released when they do.
func (x *exploration) end(s *exState, a int) {
	at := &s.attempts[a]
	at.phase = over
	for i := range at.net {
		at.net[i].release = at.net[i].ours
	}
}

// countApart counts those that granted the lock and those that accepted the token apart: the relaxation
// that goes with rules.acceptWithoutLock. accepted is what the nodes that denied the lock accepted.
func countApart(b *ballot, accepted func(node int) uint64) outcome {
	locks := 0
	tokens := map[uint64]int{}
	for i, v := range b.votes {
		switch v.state {
		case granted, raising:
			locks++
			tokens[v.token]++
		case refused:
			if token := accepted(i); token > 0 {
				tokens[token]++
			}
		}
	}
	quorum := majority(len(b.votes))
	for token, n := range tokens {
		if n >= quorum && locks >= quorum {
			b.goal = token
			return won
		}
	}
	return b.outcome()
}

// raiseAll also raises those that have denied the lock: the relaxation that goes with
// rules.raiseUnchecked.
func raiseAll(b *ballot) []int {
	nodes := b.raise()
	for i := range b.votes {
		if v := &b.votes[i]; b.goal != 0 && v.state == refused {
			v.state = raising
			nodes = append(nodes, i)
		}
	}
	return nodes
}
