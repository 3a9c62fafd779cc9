package run

import (
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/job"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
)

// supervise runs cmd as long as the hold lasts, and returns how it ended. When it returns, no process of cmd that can be
// reached runs without the lock.
func supervise(h *locker.Hold, cmd *exec.Cmd, signals <-chan os.Signal) error {
	plan := newPlan(h)
	if !plan.lasts() {
		return outcome.Errorf(outcome.Lost, "the lock was lost before the command was started")
	}
	j, err := job.Start(cmd)
	if err != nil {
		return cannotRun(cmd.Args[0], err)
	}
	return plan.watch(j, signals)
}

// watch carries out the plan until j has ended.
func (p *plan) watch(j job.Job, signals <-chan os.Signal) error {
	exited := make(chan struct{})
	go func() {
		j.Wait(p.lasts)
		close(exited)
	}()
	ctx, cancel := p.hold.Context(context.Background(), p.grace)
	defer cancel()
	expiring, lost := ctx.Done(), p.hold.Lost()
	timer := time.NewTimer(time.Hour)
	timer.Stop() // until the command is to be ended
	defer timer.Stop()
	for {
		select {
		case <-exited:
			if p.goesOn() {
				return job.Status(j.Reap()) // processes that it leaves run without the lock
			}
			p.end("the lock was lost before the command ended")
			exited = nil
		case s := <-signals:
			j.Signal(s)
		case <-lost:
			lost = nil
			p.end("the lock was lost: the command was killed")
			p.killAt = time.Now()
			j.Kill()
		case <-expiring:
			expiring = nil
			if p.goesOn() && !closed(exited) { // else it has ended in time
				p.end("the lock could not be renewed: the command was ended before the lock expired")
				j.Terminate()
			}
		case <-timer.C:
			if !time.Now().Before(p.killAt) {
				j.Kill()
			}
		}
		if exited == nil && !j.Remains() {
			p.killAt = time.Now()
			if finish(j) {
				return outcome.Errorf(outcome.Lost, "%s", p.ended)
			}
		}
		if p.ended != "" {
			timer.Reset(p.next(exited == nil))
		}
	}
}

// closed reports whether c is closed. A nil channel is not.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// finish ends what is left of a job of which no process is known to remain, and reports whether that is certain now.
func finish(j job.Job) bool {
	j.Kill() // processes that are not known
	_ = j.Reap()
	return !j.Remains()
}

// plan is when to end a command whose lock is not renewed.
type plan struct {
	hold   *locker.Hold
	grace  time.Duration // between SIGTERM and the expiry
	margin time.Duration // between SIGKILL and the expiry: for a busy machine
	ended  string        // why the command was ended, or empty
	killAt time.Time     // then
}

// newPlan makes the plan of a hold that has just begun. A renewal is due when two thirds of the TTL are left, and is then tried again:
// when a quarter is left there have been several tries.
func newPlan(h *locker.Hold) *plan {
	grace := (time.Until(h.Deadline()) / 4).Round(time.Millisecond)
	return &plan{hold: h, grace: grace, margin: min(grace/4, time.Second)}
}

// goesOn reports whether the command has the lock, and is not to end.
func (p *plan) goesOn() bool { return p.ended == "" && p.hold.Err() == nil }

// end has the command ended, for that reason. From then on its end is fixed, wherever a late renewal moves the deadline: a SIGTERM cannot
// be undone.
func (p *plan) end(why string) {
	if p.ended == "" {
		p.ended, p.killAt = why, p.hold.Deadline().Add(-p.margin)
	}
}

// lasts reports whether the hold lasts, with the margin.
func (p *plan) lasts() bool {
	return p.hold.Err() == nil && time.Now().Before(p.hold.Deadline().Add(-p.margin))
}

// next returns how long to wait for the next step: at least a moment if it is overdue, so that a command that does not die at
// once is not killed in a tight loop; and no longer than that if we look for remaining processes.
func (p *plan) next(look bool) time.Duration {
	const moment = 10 * time.Millisecond
	if look {
		return moment
	}
	return max(time.Until(p.killAt), moment)
}
