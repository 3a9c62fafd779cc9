//go:build unix

package redis_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
)

// waitInQueue has n wait for the lock, work, and give it back. It says when each has been served, and ends
// with its standard input.
func waitInQueue(c childSide) error {
	count, err := strconv.Atoi(c.n)
	if err != nil {
		return err
	}
	ended := make(chan error)
	for range count {
		go func() {
			m := c.client.Mutex("shared")
			if err := m.Lock(c.ctx); err != nil {
				ended <- err
				return
			}
			err := work(c.ctx, c.rdb, m.FencingToken())
			if err == nil {
				err = m.Unlock(c.ctx)
			}
			ended <- err
		}()
	}
	for range count {
		if err := <-ended; err != nil {
			return err
		}
		fmt.Println("served", os.Getpid())
	}
	_, _ = c.in.ReadString('\n')
	return nil
}

// startWaiters has a process of its own put n waiters into the queue.
func (r *queueTest) startWaiters(n int) *child.Process {
	r.t.Helper()
	before, listeners := r.length(), len(r.subscribers())
	p := startChild(r.t, "wait "+strconv.Itoa(n), r.direct.Options().Addr, time.Minute)
	eventually(r.t, "the process waits", func() bool { return r.length() == before+n })
	r.subscribed(listeners + 1)
	return p
}

func TestQueueProcess_waitersKilledInTheQueueHoldNobodyUp(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newQueueTest(t, connect(t, s.Addr()))
	unlock := r.hold(newClient(t, s.Addr()))
	head := r.startWaiters(3)
	first := r.join(t.Context(), newClient(t, s.Addr()), 0)
	r.subscribed(2)
	middle := r.startWaiters(3)
	second := r.join(t.Context(), newClient(t, s.Addr()), 1)
	head.Kill()
	middle.Kill()
	r.subscribed(2)
	resetStats(t, r.direct)
	unlock()
	wantServed(t, []<-chan error{first, second})
	assert.Equal(t, 2, commandCalls(t, r.direct)["publish"], "claims, none of them for the dead")
	r.wantOrder(0, 1)
	r.wantEmpty()
}

func TestQueueProcess_oneKilledWhileTheLockIsClaimedForItCostsOneClaim(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newQueueTest(t, connect(t, s.Addr()))
	unlock := r.hold(newClient(t, s.Addr()))
	p := r.startWaiters(20)
	next := r.join(t.Context(), newClient(t, s.Addr()), 0)
	r.subscribed(2)
	p.Stop()
	unlock()
	p.Kill()
	require.NoError(t, await(t, next))
	r.wantEmpty()
}

// Twenty wait in a process that hangs while it is handed the lock.
func TestQueueProcess_oneThatHangsCostsOneClaimAndIsServedWhenItGoesOn(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newQueueTest(t, connect(t, s.Addr()))
	unlock := r.hold(newClient(t, s.Addr()))
	hung := r.startWaiters(20)
	all := r.joinAll(t.Context(), 5, newClients(t, s.Addr(), 2)...)
	r.subscribed(3)
	hung.Stop()
	resetStats(t, r.direct)
	unlock()
	wantServed(t, all)
	assert.LessOrEqual(t, commandCalls(t, r.direct)["publish"], 6, "claims, one of them for the one that hangs")
	r.wantOrder(upTo(5)...)
	hung.Continue()
	for range 20 {
		hung.Says("served")
	}
	r.wantEmpty()
	hung.Tell("thanks")
}

func TestQueueProcess_aKilledHoldersQueueIsServedInOrder(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	s := testserver.Redis(t)
	r := newQueueTest(t, connect(t, s.Addr()))
	holder := startChild(t, "hold", s.Addr(), ttl)
	holder.Says("held")
	all := r.joinAll(t.Context(), 40, newClients(t, s.Addr(), 4)...)
	r.subscribed(4)
	holder.Kill()
	wantServed(t, all)
	r.wantOrder(upTo(40)...)
	r.wantEmpty()
}

func TestQueueProcess_processesAreServedInOrder(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newQueueTest(t, connect(t, s.Addr()))
	unlock := r.hold(newClient(t, s.Addr()))
	var children []*child.Process
	for range 4 {
		children = append(children, r.startWaiters(1))
	}
	last := r.join(t.Context(), newClient(t, s.Addr(), locker.WithTTL(5*time.Second)), 0)
	unlock()
	require.NoError(t, await(t, last))
	for _, p := range children {
		p.Says("served")
	}
	r.wantEmpty()
}
