package conformance_test

import (
	"context"
	"encoding/gob"
	"errors"
	"net"
	"sync"
	"time"
)

// naiveHold is one hold of a naive lock.
type naiveHold struct {
	token uint64
	lost  chan struct{}
	timer *time.Timer

	mu    sync.Mutex
	owner string
	until time.Time
	ended bool // lost is closed
}

// newHold is a hold that is lost at its deadline, unless it does not look.
func newHold(owner string, token uint64, until time.Time, look bool) *naiveHold {
	h := &naiveHold{owner: owner, token: token, until: until, lost: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(time.Until(until), func() { h.gone(look) })
	return h
}

// gone reports whether the hold is lost, and marks it lost if its deadline has passed.
func (h *naiveHold) gone(look bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if look && !time.Now().Before(h.until) {
		h.end()
	}
	return h.ended
}

// end needs h.mu.
func (h *naiveHold) end() {
	if !h.ended {
		h.ended = true
		close(h.lost)
	}
}

func (h *naiveHold) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end()
}

func (h *naiveHold) deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

// by is the owner.
func (h *naiveHold) by() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owner
}

// rename and revive are for flaws.
func (h *naiveHold) rename(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owner = owner
}

func (h *naiveHold) revive(until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until, h.ended, h.lost = until, false, make(chan struct{})
}

// extended moves the deadline, unless the hold is lost.
func (h *naiveHold) extended(until time.Time) (ok bool) {
	if h.gone(true) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if until.After(h.until) {
		h.until = until
		h.timer.Reset(time.Until(until))
	}
	return true
}

// naiveClient is what naive locks of one process share: connections to the server, and what runs in the
// background.
type naiveClient struct {
	address string
	flaw    string
	ctx     context.Context
	cancel  context.CancelFunc
	others  sync.WaitGroup

	mu    sync.Mutex
	idle  []*conversation
	began bool          // to talk to the server
	ahead time.Duration // how much the server's clock is, at least
}

// conversation is one connection, on which one question at a time is out.
type conversation struct {
	net.Conn
	questions *gob.Encoder
	answers   *gob.Decoder
}

func dial(address, flaw string) *naiveClient {
	c := &naiveClient{address: address, flaw: flaw}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *naiveClient) close() {
	c.cancel()
	c.others.Wait()
	c.closeIdle()
}

func (c *naiveClient) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.idle {
		_ = conn.Close()
	}
	c.idle = nil
}

// insist asks until there is an answer. before is when what was answered was asked.
func (c *naiveClient) insist(ctx context.Context, q question, limit time.Duration) (a answer, before time.Time, err error) {
	for ctx.Err() == nil {
		before = time.Now()
		if a, err = c.ask(ctx, q, limit); err == nil {
			return a, before, nil
		}
		q.Again = true
		pause(ctx, 5*time.Millisecond)
	}
	return a, before, errors.Join(ctx.Err(), context.Cause(ctx), err)
}

// ask asks once. A take is to be refused when it comes so late that it is of no use.
func (c *naiveClient) ask(ctx context.Context, q question, limit time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if q.Op == "take" && (q.TTL != 0 || c.flaw == "SETNX, then EXPIRE, with all that helps but one step") && !takesLate[c.flaw] && c.flaw != "any validity will do" && c.flaw != "counts from the answer" {
		notAfter, err := c.in(ctx, limit)
		if err != nil {
			return answer{}, err
		}
		q.NotAfter = notAfter
	}
	return c.exchange(ctx, q)
}

// in is the server's time that soon, or a little earlier.
func (c *naiveClient) in(ctx context.Context, d time.Duration) (time.Duration, error) {
	c.mu.Lock()
	began := c.began
	c.mu.Unlock()
	if !began {
		if c.flaw == "the first question heeds no ctx" {
			own, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			ctx = own
		}
		if _, err := c.exchange(ctx, question{Op: "time"}); err != nil {
			return 0, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(booted) + c.ahead + d, nil
}

func (c *naiveClient) exchange(ctx context.Context, q question) (a answer, err error) {
	conn, err := c.connection(ctx)
	if err != nil {
		return a, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = conn.questions.Encode(q)
	if err == nil {
		err = conn.answers.Decode(&a)
	}
	if !stop() && err == nil {
		_ = conn.Close() // its deadline may be set yet
		return a, nil
	}
	if err != nil {
		_ = conn.Close()
		if c.flaw != "leaves one silent connection at a time" {
			c.closeIdle() // they may be silent, too
		}
		return a, errors.Join(ctx.Err(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flaw == "a connection for each question" {
		_ = conn.Close()
	} else {
		c.idle = append(c.idle, conn)
	}
	if ahead := a.Now - time.Since(booted); !c.began || ahead > c.ahead {
		c.began, c.ahead = true, ahead
	}
	return a, nil
}

var errBroken = errors.New("the connection is broken")

// connection is one that nobody uses now.
func (c *naiveClient) connection(ctx context.Context) (*conversation, error) {
	c.mu.Lock()
	if last := len(c.idle) - 1; last >= 0 {
		conn := c.idle[last]
		c.idle = c.idle[:last]
		c.mu.Unlock()
		return conn, nil
	}
	began := c.began
	c.mu.Unlock()
	if began && c.flaw == "connects once" {
		return nil, errBroken
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp4", c.address)
	if err != nil {
		return nil, err
	}
	if c.ctx.Err() != nil { // nobody would close it
		_ = conn.Close()
		return nil, context.Canceled
	}
	return &conversation{conn, gob.NewEncoder(conn), gob.NewDecoder(conn)}, nil
}
