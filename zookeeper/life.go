package zookeeper

import (
	"slices"
	"time"
)

// life is how long a session is known to last. A contact is a request of ours that was answered; it
// moves the end of the session, at the server that answered. That may be a follower which the
// leader has lost, or one that dies before it hands on that the session was in touch: followers do
// so with the leader's pings, twice a tick. So a contact counts when it is proven: when a request
// that a quorum committed, sent when the contact was ripe, was answered as well. A proven contact
// counts from when it was sent.
type life struct {
	ttl, tick time.Duration
	born      time.Time // when the first proven contact was sent
	proven    time.Time // when the youngest was; zero: there is none
	young     []contact // that are not, in no order
}

// contact is one that a request proves which is sent when it is ripe, or later.
type contact struct{ sent, ripe time.Time }

// contactsPerTTL is how close together contacts may be and still be told apart.
const contactsPerTTL = 64

// contact takes in that a request sent at sent was answered at answered, and is ripe a while later.
// That is a tick, as a rule. Nothing needs to be waited for if the session was taken up again on a
// connection whose making began at sent: servers ask the leader. It may have been deposed, so that
// this too needs proof.
func (l *life) contact(sent, answered time.Time, while time.Duration) {
	if !sent.After(l.proven) {
		return
	}
	c := contact{sent, answered.Add(while)}
	best, gap := l.ripe(answered), pace(l.ttl)/contactsPerTTL
	l.young = slices.DeleteFunc(l.young, func(y contact) bool { return !y.ripe.After(answered) && y.sent.Before(best) })
	if !slices.ContainsFunc(l.young, func(y contact) bool { return !y.ripe.After(c.ripe) && y.sent.After(c.sent.Add(-gap)) }) {
		l.young = append(l.young, c)
	}
}

// ripe returns when the youngest contact was sent that a request proves which is sent at now;
// proven if there is none.
func (l *life) ripe(now time.Time) time.Time {
	best := l.proven
	for _, y := range l.young {
		if !y.ripe.After(now) {
			best = later(best, y.sent)
		}
	}
	return best
}

// prove takes in that the leader, and a quorum, knew the session at sent or later: it was made
// then, or a quorum has committed a request that was sent when the contact of sent was ripe. Of
// contacts that ripen while that request is under way nothing is known.
func (l *life) prove(sent time.Time) {
	if !sent.After(l.proven) {
		return
	}
	if l.born.IsZero() {
		l.born = sent
	}
	l.proven = sent
	l.young = slices.DeleteFunc(l.young, func(y contact) bool { return !y.sent.After(sent) })
}

// until returns when the session may end; zero if nothing is known.
func (l *life) until() time.Time {
	if l.proven.IsZero() {
		return time.Time{}
	}
	return l.proven.Add(l.ttl)
}

// youngest returns when the last contact was sent, proven or not.
func (l *life) youngest() time.Time {
	last := l.proven
	for _, y := range l.young {
		last = later(last, y.sent)
	}
	return last
}

// ripens returns when the first of the contacts ripens that were sent after sent; zero if there is
// none.
func (l *life) ripens(sent time.Time) (first time.Time) {
	for _, y := range l.young {
		if y.sent.After(sent) && (first.IsZero() || y.ripe.Before(first)) {
			first = y.ripe
		}
	}
	return first
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
