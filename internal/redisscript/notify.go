package redisscript

import (
	"context"
	"fmt"
	"time"

	"github.com/go-locker/locker/internal/redisscript/script"
)

// NotifyWait implements driver.WaitNotifier. It has the server note that this process is to be
// told: the next waiter does that in the request by which it comes, on the channel on which the
// process's own waiters are told.
func (c *claim) NotifyWait(ctx context.Context, wake func()) (waits bool, next time.Duration, err error) {
	hub := c.driver.hub
	subscribed := hub.Watch(ctx, c.Keys, wake) // before it is noted: what is told then is not missed
	process := hub.Prefix()
	if process[0] == script.Polls {
		process = ""
	}
	reply := c.send(ctx, script.Notify, c.Keys[:], c.argOwner, process)
	if reply.Err != nil {
		return false, 0, reply.Err
	}
	n, ok := reply.Value.(int64)
	if !ok {
		return false, 0, fmt.Errorf("unexpected reply to the notify script: %v", reply.Value)
	}
	if subscribed {
		next = c.TTL
	}
	return n == 1, next, nil
}
