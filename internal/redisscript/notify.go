package redisscript

import (
	"context"
	"fmt"
	"time"
)

// NotifyWait implements driver.WaitNotifier. It has the server note that this process is to be
// told: the next waiter does that in the request by which it comes, on the channel on which the
// process's own waiters are told.
func (c *claim) NotifyWait(ctx context.Context, wake func()) (waits bool, next time.Duration, err error) {
	hub, process := c.driver.hub, ""
	subscribed := hub.watch(ctx, c, wake) // before it is noted: what is told then is not missed
	if kind := hub.kind(); kind != polls {
		process = hub.prefixes[kind]
	}
	reply := c.send(ctx, notify, c.keys[:], c.argOwner, process)
	if reply.Err != nil {
		return false, 0, reply.Err
	}
	n, ok := reply.Value.(int64)
	if !ok {
		return false, 0, fmt.Errorf("unexpected reply to the notify script: %v", reply.Value)
	}
	if subscribed {
		next = c.ttl
	}
	return n == 1, next, nil
}

// holder is a hold that asks to be told that somebody waits.
type holder struct{ wake func() }

// watch has a holder of c's lock be woken when somebody may have begun to wait, until ctx ends. It
// reports whether the server tells: if not, the holder is woken as soon as it does.
func (h *hub) watch(ctx context.Context, c *claim, wake func()) (subscribed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	list, one := h.listOf(c), &holder{wake}
	if list.holders == nil {
		list.holders = map[*holder]bool{}
	}
	list.present++
	list.holders[one] = true
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(list.holders, one)
		list.leave()
	})
	h.subscribe(list)
	return list.subscribed
}

// wakeHolders has those look for waiters who hold the lock, and have asked.
func (list *waitList) wakeHolders() {
	for one := range list.holders {
		one.wake()
	}
}
