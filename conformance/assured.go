package conformance

import "time"

// told reports whether the Locker says, without a request, that the hold with that token is lost. Without tokens it may be
// unable to: all are 0 then.
func (p *party) told(token uint64) bool {
	select {
	case <-p.lost():
		return true
	default:
		return p.token() != token
	}
}

// until is how long the hold lasts for certain, unless somebody ends it: as it was when it was
// granted or extended, or later if it was renewed since.
func (p *party) until() time.Time {
	until := p.deadline()
	if lasts := p.lasts.Load(); lasts != nil && lasts.After(until) {
		until = *lasts
	}
	return until
}

// excludes ends the trial if b gets the lock that p holds, when b tries for d.
func (p *party) excludes(b *party, d time.Duration) {
	if err := b.lockWithin(d); err != nil {
		return
	}
	p.overlap(b)
}

// overlap ends the trial: b got the lock while p had it. Both hold it in the time for which a hold
// lasts whatever pauses, or if p can still extend its hold. That p was told of a loss is an excuse
// if there are faults. If there are none nobody has ended its hold.
func (p *party) overlap(b *party) { p.overlapOf("Lock", b) }

// overlapOf is overlap, where op is what b called.
func (p *party) overlapOf(op string, b *party) {
	token := p.token()
	if left := time.Until(p.until()); left > 0 && (p.env.calm || token != 0 && !p.told(token)) {
		p.env.failf("%s's %s succeeded while %s held the lock, which nobody had ended, for %v more: its token is %d, and its Extend then says %s",
			b.who, op, p.who, left.Round(time.Millisecond), token, says(p.extend()))
	}
	err := p.extend()
	if err == nil {
		p.env.failf("%s's %s succeeded while %s held the lock: %s's Extend still succeeds", b.who, op, p.who, p.who)
	}
	p.env.doubtf("%s's %s succeeded while %s held the lock, whose Extend then says %v", b.who, op, p.who, says(err))
}
