package zookeeper

import (
	"slices"
	"time"
)

// How long a session certainly lasts.
//
// The leader expires a session one time-out after the latest heartbeat of it that the leader knows.
// A heartbeat is any request of the session; the server that the client is connected to answers most
// of them alone. A follower reports the heartbeats of its clients in its replies to the leader's
// pings, of which there are two in a tickTime. So a reply by itself bounds nothing: the follower may
// be partitioned from the leader, or crash before it reports.
//
//	1. heartbeat     sent at s, answered at a. record: it is pending, confirmableFrom a + delay
//	2. report        by confirmableFrom the follower has reported it, if it follows the leader
//	3. quorum write  sent at confirmableFrom or later, and answered. confirm: a majority took the
//	                 write from that follower, which had reported before: its channel to the
//	                 leader is FIFO. After a move the heartbeats at the former server count, too:
//	                 the new server had the leader touch the session later, when it resumed it
//
// From then on the heartbeat counts: the session lasts until s + TTL at least. The delay is half a
// tickTime or longer (see delayFor).
//
// Invariants. (1) expires counts from when a request was sent, never from its reply. (2) It never
// decreases. (3) It takes only confirmed heartbeats into account, so that a holder connected to a
// partitioned follower loses its lock before the leader grants it to another. (4) A quorum write
// confirms the heartbeats that were confirmable when it was sent; what becomes confirmable while it
// is in flight waits for the next one.
//
// Lost reply: of a heartbeat, nothing is recorded; of a quorum write, nothing is confirmed. Either
// may have extended the session, which then lasts for longer than is known here.
//
// One danger remains: a leader that was paused until the session had expired by its clock may answer
// the quorum write before it hears of the heartbeat. Then the session ends early.

// heartbeat is an answered request that is not confirmed yet.
type heartbeat struct{ sent, confirmableFrom time.Time }

// heartbeats are the heartbeats of one session.
type heartbeats struct {
	ttl       time.Duration
	delay     time.Duration // the longest from an answer until the leader knows of the heartbeat
	first     time.Time     // send time of the first confirmed heartbeat: the session's creation
	confirmed time.Time     // send time of the latest confirmed heartbeat; zero: there is none
	pending   []heartbeat   // in no order
}

// heartbeatsPerTTL bounds pending: heartbeats that are closer together count as one.
const heartbeatsPerTTL = 64

// record adds the heartbeat that was sent at sent and answered at answered, and reaches the leader
// within delay of its answer: h.delay, or 0 for a connection, begun at sent, that has resumed the
// session, since the server asks the leader first. A resumption needs confirmation, too: the leader
// may have been deposed.
func (h *heartbeats) record(sent, answered time.Time, delay time.Duration) {
	if !sent.After(h.confirmed) {
		return
	}
	added := heartbeat{sent, answered.Add(delay)}
	best, gap := h.latestConfirmable(answered), pace(h.ttl)/heartbeatsPerTTL
	h.pending = slices.DeleteFunc(h.pending, func(p heartbeat) bool { return !p.confirmableFrom.After(answered) && p.sent.Before(best) })
	if !slices.ContainsFunc(h.pending, func(p heartbeat) bool {
		return !p.confirmableFrom.After(added.confirmableFrom) && p.sent.After(added.sent.Add(-gap))
	}) {
		h.pending = append(h.pending, added)
	}
}

// latestConfirmable returns the send time of the latest heartbeat that a quorum write sent at now confirms.
func (h *heartbeats) latestConfirmable(now time.Time) time.Time {
	best := h.confirmed
	for _, p := range h.pending {
		if !p.confirmableFrom.After(now) {
			best = later(best, p.sent)
		}
	}
	return best
}

// confirm records that a majority knows of the heartbeat that was sent at sent: by the session's
// creation, or by a quorum write for which latestConfirmable has returned sent.
func (h *heartbeats) confirm(sent time.Time) {
	if !sent.After(h.confirmed) {
		return
	}
	if h.first.IsZero() {
		h.first = sent
	}
	h.confirmed = sent
	h.pending = slices.DeleteFunc(h.pending, func(p heartbeat) bool { return !p.sent.After(sent) })
}

// expires returns the earliest time at which the session may expire; zero if nothing is confirmed.
func (h *heartbeats) expires() time.Time {
	if h.confirmed.IsZero() {
		return time.Time{}
	}
	return h.confirmed.Add(h.ttl)
}

// latest returns the send time of the latest heartbeat, confirmed or pending.
func (h *heartbeats) latest() time.Time {
	last := h.confirmed
	for _, p := range h.pending {
		last = later(last, p.sent)
	}
	return last
}

// confirmable returns the earliest time at which a quorum write confirms a heartbeat sent after
// sent; zero if none is pending.
func (h *heartbeats) confirmable(sent time.Time) (first time.Time) {
	for _, p := range h.pending {
		if p.sent.After(sent) && (first.IsZero() || p.confirmableFrom.Before(first)) {
			first = p.confirmableFrom
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
