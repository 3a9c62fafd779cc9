package conformance

import (
	"fmt"

	"github.com/go-locker/locker"
)

var tokenRows = []row{{
	name:    "tokens rise from process to process",
	promise: "A hold's token is larger than that of every earlier hold of the name in any process.",
	sources: []string{kleppmann, chubby},
	shows:   locker.Fencing,
	needs:   []need{tokens},
	body:    tokensRise,
}, {
	name:    "tokens rise over the holds of one Locker",
	promise: "A hold's token is larger than that of every earlier hold of the name in any process.",
	sources: []string{kleppmann},
	shows:   locker.Fencing,
	needs:   []need{tokens},
	body:    tokensRiseOnRetake,
}, {
	name:    "tokens rise over the Lockers of one client",
	promise: "A hold's token is larger than that of every earlier hold of the name in any process.",
	sources: []string{kleppmann, mutexSession},
	shows:   locker.Fencing,
	needs:   []need{clients, tokens},
	body:    tokensRiseInClient,
}, {
	name:    "tokens rise after an expiry",
	promise: "A hold's token is larger than that of every earlier hold, also of one that expired.",
	sources: []string{kleppmann},
	shows:   locker.Fencing,
	needs:   []need{tokens, expire},
	body:    tokensRiseOverExpiry,
}, {
	name:    "tokens rise in the order of the holds, with many contending",
	promise: "A hold's token is larger than that of every earlier hold of the name in any process.",
	sources: []string{kleppmann, ubgoToken},
	chance:  true,
	shows:   locker.Fencing,
	needs:   []need{tokens},
	body:    func(e *env) { e.rising(e.contend(e.processes(e.name()), linger)) },
}, {
	name:    "Extend does not change the token",
	promise: "The token is unchanged by Extend.",
	sources: []string{contract},
	needs:   []need{tokens, extends},
	body:    tokenStable,
}, {
	name:    "the token is 0 without a hold",
	promise: "The token is 0 when nothing is held: before Lock, and after Unlock.",
	sources: []string{redissonToken},
	needs:   []need{tokens},
	body:    tokenZero,
}, {
	name:    "the token is 0 after a loss",
	promise: "The token is 0 when nothing is held: from the moment of a loss.",
	sources: []string{redissonToken},
	needs:   []need{tokens, expire},
	body:    tokenZeroAfterLoss,
}}

// sequence watches that tokens rise.
type sequence struct {
	last uint64
	of   string
}

// next ends the trial unless p, who holds, has a token larger than all before.
func (s *sequence) next(p *party, of string) {
	token := p.token()
	if token == 0 {
		p.prolong() // is it lost?
		p.env.failf("the token of %s is 0", of)
	}
	if token <= s.last {
		p.env.failf("the token of %s is %d, that of %s before it was %d; want a larger one", of, token, s.of, s.last)
	}
	s.last, s.of = token, of
}

func tokensRise(e *env) {
	name := e.name()
	var tokens sequence
	parties := []*party{e.party("A", name, e.long), e.party("B", name, e.long), e.party("C", name, e.long)}
	for round := range 3 {
		for _, p := range parties {
			p.take()
			tokens.next(p, fmt.Sprintf("%s's hold %d", p.who, round+1))
			p.release()
		}
	}
}

func tokensRiseOnRetake(e *env) {
	a := e.party("A", e.name(), e.long)
	var tokens sequence
	for i := range 10 {
		if i%2 == 0 || a.tryLock(e.Context()) != nil {
			a.take()
		}
		tokens.next(a, fmt.Sprintf("hold %d", i+1))
		a.release()
	}
}

func tokensRiseInClient(e *env) {
	name := e.name()
	of := e.client(e.long, false)
	var tokens sequence
	for i := range 5 {
		p := of(fmt.Sprintf("Locker %d", i+1), name)
		p.take()
		tokens.next(p, fmt.Sprintf("%s's hold", p.who))
		p.release()
	}
}

func tokensRiseOverExpiry(e *env) {
	a, b := e.rivals(e.ttl, e.long)
	var tokens sequence
	a.take()
	tokens.next(a, "A's hold, which expired")
	b.lockBy(e.ttl+e.patience, "A's TTL is over")
	tokens.next(b, "B's hold")
	b.release()
	_ = a.unlock()
	a.take()
	tokens.next(a, "A's second hold")
	a.release()
}

func tokenStable(e *env) {
	a := e.party("A", e.name(), e.long)
	a.take()
	token := a.token()
	for range 3 {
		a.prolong()
		if now := a.token(); now != token {
			a.prolong() // is it lost?
			e.failf("A's token was %d, and after Extend it is %d", token, now)
		}
	}
	a.release()
}

func tokenZero(e *env) {
	a := e.party("A", e.name(), e.long)
	for i := range 2 {
		if token := a.token(); token != 0 {
			e.failf("A's token, after %d times Lock and Unlock, is %d; want 0", i, token)
		}
		a.take()
		if a.token() == 0 {
			a.prolong() // is it lost?
			e.failf("A's token is 0 while A holds the lock")
		}
		a.release()
	}
	a.wantNoToken("after Unlock")
}

func tokenZeroAfterLoss(e *env) {
	a, b := e.rivals(e.ttl, e.long)
	a.takeOver(b)
	a.awaitExpiry()
	a.wantNoToken("after its TTL, when B has the lock")
	_ = a.unlock()
	a.wantNoToken("after the Unlock of its lost hold")
	b.release()
}
