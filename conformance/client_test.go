package conformance_test

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
)

// wired is the Driver of a server. With no flaw it keeps the obligations of one, by polling.
type wired struct {
	address string
	flaw    string
	ctx     context.Context
	cancel  context.CancelFunc
	others  sync.WaitGroup // goroutines of flaws

	mu    sync.Mutex
	idle  []*conversation
	began bool          // to talk to the server
	cut   bool          // a take has failed
	ahead time.Duration // how much the server's clock is, at least
	holds int           // that were granted
}

// dial makes Lockers of one client, with a flaw or none.
func dial(t conformance.TB, address, flaw string, ttl time.Duration, renew bool) func(name string) *patched {
	d := &wired{address: address, flaw: flaw}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	opts := []locker.Option{locker.WithTTL(ttl)}
	if flaw == "any validity will do" {
		opts[0] = locker.WithTTL(2 * ttl)
	}
	if !renew {
		opts = append(opts, locker.WithoutRenewal())
	}
	c := clientOf(t, d, opts...)
	return func(name string) *patched {
		p := patch(c.RWMutex(name), ttl)
		p.ask = func(q question) {
			ctx, cancel := context.WithTimeout(d.ctx, ttl)
			defer cancel()
			q.Name = prefix + name
			_, _ = d.exchange(ctx, q)
		}
		if alter := alterations[flaw]; alter != nil {
			alter(p)
		}
		return p
	}
}

// clientOf makes the client of a Driver, which ends with t.
func clientOf(t conformance.TB, d driver.Driver, opts ...locker.Option) *locker.Client {
	c, err := locker.New(d, opts...)
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Guarantees promises nothing beyond the contract.
func (d *wired) Guarantees() driver.Guarantees { return driver.Guarantees{} }

func (d *wired) Close() error {
	d.cancel()
	d.others.Wait()
	d.closeIdle()
	return nil
}

func (d *wired) closeIdle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.idle {
		_ = conn.Close()
	}
	d.idle = nil
}

// conversation is one connection, on which one question at a time is out.
type conversation struct {
	net.Conn
	questions *gob.Encoder
	answers   *gob.Decoder
}

// in returns the server's time that soon, or a little earlier.
func (d *wired) in(ctx context.Context, after time.Duration) (time.Duration, error) {
	d.mu.Lock()
	began := d.began
	d.mu.Unlock()
	if !began {
		if d.flaw == "the first question heeds no ctx" {
			own, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			ctx = own
		}
		if _, err := d.exchange(ctx, question{Op: "time"}); err != nil {
			return 0, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(booted) + d.ahead + after, nil
}

func (d *wired) exchange(ctx context.Context, q question) (a answer, err error) {
	conn, err := d.connection(ctx)
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
		if d.flaw != "leaves one silent connection at a time" {
			d.closeIdle() // they may be silent, too
		}
		return a, errors.Join(ctx.Err(), err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flaw == "a connection for each question" {
		_ = conn.Close()
	} else {
		d.idle = append(d.idle, conn)
	}
	switch ahead := a.Now - time.Since(booted); {
	case a.Full && d.flaw == fmt.Sprintf("an error reply to %q counts as OK", q.Op):
		return answer{OK: true, Token: uint64(time.Now().UnixMicro())}, nil
	case a.Full:
		return a, errors.New("the server has no space left")
	case !d.began || ahead > d.ahead:
		d.began, d.ahead = true, ahead
	}
	return a, nil
}

// connection is one that nobody uses now.
func (d *wired) connection(ctx context.Context) (*conversation, error) {
	d.mu.Lock()
	if last := len(d.idle) - 1; last >= 0 {
		conn := d.idle[last]
		d.idle = d.idle[:last]
		d.mu.Unlock()
		return conn, nil
	}
	began := d.began
	d.mu.Unlock()
	if began && d.flaw == "connects once" {
		return nil, errors.New("the connection is broken")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", d.address)
	if err != nil {
		return nil, err
	}
	if d.ctx.Err() != nil { // nobody would close it
		_ = conn.Close()
		return nil, context.Canceled
	}
	return &conversation{conn, gob.NewEncoder(conn), gob.NewDecoder(conn)}, nil
}

// claim is one of a wired Driver. Ask, Extend and Release send one request each, unless a flaw has
// them do more.
type claim struct {
	driver.Request
	d     *wired
	owner string

	mu         sync.Mutex
	token      uint64
	until      time.Time
	failed     bool // a request has
	released   bool // a release was sent
	downgraded bool // a downgrade was sent
	hold       int  // which of its client's it is, from 1
	extends    int
}

// roundings are the flaws with which a take asks for a multiple of something.
var roundings = map[string]time.Duration{
	"TTL in whole seconds": time.Second, "TTL in tenths of a second": time.Second / 10, "TTL in multiples of the shortest": memoryTTL,
	"SETNX, then EXPIRE": never, "SETNX, then EXPIRE, with clean-up": never, "SETNX, then EXPIRE, with all that helps but one step": never,
}

// wraps are the flaws with which a take counts a TTL in too few bits.
var wraps = map[string]func(ttl time.Duration) time.Duration{
	"TTL in milliseconds of 32 bits, with a sign": func(ttl time.Duration) time.Duration {
		return time.Duration(int32(ttl.Milliseconds())) * time.Millisecond
	},
	"TTL in milliseconds of 32 bits": func(ttl time.Duration) time.Duration {
		return time.Duration(uint32(ttl.Milliseconds())) * time.Millisecond
	},
	"TTL in microseconds of 32 bits": func(ttl time.Duration) time.Duration {
		return time.Duration(uint32(ttl.Microseconds())) * time.Microsecond
	},
}

const never = time.Hour

func newOwner() string { return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()) }

func (d *wired) Claim(req driver.Request) driver.Claim {
	c := &claim{Request: req, d: d, owner: newOwner()}
	switch d.flaw {
	case "owner is the process":
		c.owner = "process"
	case "owner is the client":
		c.owner = fmt.Sprintf("%p", d)
	}
	return c
}

func (c *claim) question(op string) question {
	c.mu.Lock()
	defer c.mu.Unlock()
	return question{Op: op, Name: c.Name, Owner: c.owner, Shared: c.Shared}
}

// heeding is ctx, unless a flaw has a call ignore it.
func (c *claim) heeding(ctx context.Context, call string) context.Context {
	if c.d.flaw == "a Driver's "+call+" ignores contexts" {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// taking is what a claim asks for.
func (c *claim) taking() question {
	q := c.question("take")
	q.TTL, q.Waits = c.TTL, c.Wake != nil
	if round := roundings[c.d.flaw]; round != 0 {
		q.TTL = q.TTL.Truncate(round)
	}
	if wrap := wraps[c.d.flaw]; wrap != nil {
		q.TTL = max(wrap(q.TTL), memoryTTL)
	}
	switch c.d.flaw {
	case "a TTL of ten seconds at most":
		q.TTL = min(q.TTL, 10*time.Second)
	case "expires one TTL late":
		q.TTL *= 2
	case "expires early":
		q.TTL /= 5
	case "any validity will do":
		q.TTL /= 2
	}
	return q
}

// Ask sends a take, which is refused when it arrives so late that it is of no use.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	d, before := c.d, time.Now()
	ctx = c.heeding(ctx, map[bool]string{true: "Ask, of a Lock,", false: "Ask, of a TryLock,"}[c.Wake != nil])
	q := c.taking()
	switch next = 2 * time.Millisecond; d.flaw {
	case "looks once a TTL":
		next = c.TTL
	case "looks every 25 ms":
		next = 25 * time.Millisecond
	case "looks, and takes a little later":
		if a, err := d.exchange(ctx, c.question("look")); err != nil || a.Token != 0 && !a.OK {
			return next, orHeld(err)
		}
	}
	d.mu.Lock()
	cut := d.cut
	d.mu.Unlock()
	if cut && d.flaw == "who is back has its turn" {
		q.Op = "seize"
	}
	if c.failed {
		switch d.flaw {
		case "waits for an answer that was lost":
			<-ctx.Done()
			return 0, ctx.Err()
		case "an owner for each try":
			q.Owner = newOwner()
			c.owner = q.Owner
		}
	}
	if d.flaw == "looks, and takes a little later" {
		time.Sleep(200 * time.Microsecond)
		q.Op = "seize"
	}
	if oneStep := q.TTL != 0 || d.flaw == "SETNX, then EXPIRE, with all that helps but one step"; oneStep && !takesLate(d.flaw) {
		if q.NotAfter, err = d.in(ctx, c.TTL/2); err != nil {
			return 0, c.failure(err)
		}
	}
	a, err := d.exchange(ctx, q)
	switch {
	case err != nil && d.flaw == "takes an error for a success":
		a = answer{OK: true, Token: 1}
	case err != nil:
		return next, c.failure(err)
	case a.Refused:
		return 0, errors.New("the server could not decide")
	case !a.OK:
		return next, driver.ErrHeld
	}
	if strings.HasPrefix(d.flaw, "SETNX, then EXPIRE") {
		time.Sleep(time.Millisecond) // in which much can happen
		q.Op, q.TTL = "extend", c.TTL
		if _, err := d.exchange(ctx, q); err != nil {
			return 0, c.failure(err)
		}
	}
	d.mu.Lock()
	d.holds++
	hold := d.holds
	d.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.until, c.hold = a.Token, before.Add(c.TTL), hold
	if d.flaw == "renews after Unlock" {
		d.others.Go(c.renewForEver)
	}
	return 0, nil
}

func orHeld(err error) error {
	if err != nil {
		return err
	}
	return driver.ErrHeld
}

// failure is what a flaw makes of the error of a take.
func (c *claim) failure(err error) error {
	c.failed = true
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.cut = true
	if c.d.flaw == "ErrHeld in an outage" && c.Wake != nil || c.d.flaw == "TryLock says ErrHeld in an outage" && c.Wake == nil {
		return driver.ErrHeld
	}
	return err
}

// renewForEver prolongs whatever hold of the name there is.
func (c *claim) renewForEver() {
	q := c.question("prolong")
	for q.TTL = 10 * c.TTL; c.d.ctx.Err() == nil; time.Sleep(c.TTL / 20) {
		_, _ = c.d.exchange(c.d.ctx, q)
	}
}

func (c *claim) Token() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

func (c *claim) Validity() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.until)
}

// owns asks whether the hold is there.
func (c *claim) owns(ctx context.Context) error {
	a, err := c.d.exchange(ctx, c.question("look"))
	if err == nil && !a.OK {
		err = driver.ErrLost
	}
	return err
}

func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	ctx, before := c.heeding(ctx, "Extend"), time.Now()
	q := c.question("extend")
	switch q.TTL = ttl; c.d.flaw {
	case "Extend in whole seconds":
		q.TTL = ttl.Truncate(time.Second)
	case "Extend shortens":
		q.TTL = ttl / 10
	case "a TTL of ten seconds at most":
		q.TTL = min(ttl, 10*time.Second)
	case "extends whatever is there":
		q.Op = "prolong"
	case "looks and prolongs, back to back":
		if err := c.owns(ctx); err != nil {
			return err
		}
		q.Op = "prolong"
	}
	var a answer
	var err error
	if a.OK = c.pretends(); !a.OK {
		a, err = c.d.exchange(ctx, q)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failed && c.d.flaw == "renewal ends at its first error":
		return errors.New("a request has failed")
	case err != nil:
		c.failed = true
		return err
	case !a.OK:
		return driver.ErrLost
	}
	c.until = before.Add(ttl)
	return nil
}

// pretends reports whether an Extend says nil and does nothing.
func (c *claim) pretends() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.extends++
	switch c.d.flaw {
	case "Extend says nil and does nothing":
		return true
	case "renewal ends after ten times":
		return c.extends > 10
	case "renews the first hold alone":
		return c.hold > 1
	case "renews nothing that TryLock took":
		return c.Wake == nil
	}
	return false
}

func (c *claim) Release(ctx context.Context) error {
	ctx = c.heeding(ctx, "Release")
	q := c.question("release")
	c.mu.Lock()
	q.Again = c.released
	c.released = true
	token := c.token
	c.mu.Unlock()
	switch c.d.flaw {
	case "no clean-up", "SETNX, then EXPIRE", "a share never expires":
		if token == 0 {
			return nil
		}
	case "deletes whatever is there":
		q.Op = "delete"
	case "looks, then deletes":
		ctx = context.WithoutCancel(ctx)
		if err := c.owns(ctx); err != nil {
			return err
		}
		c.dawdle(ctx)
		q.Op = "delete"
	case "looks and deletes, back to back":
		if err := c.owns(ctx); err != nil {
			return err
		}
		q.Op = "delete"
	}
	a, err := c.d.exchange(ctx, q)
	switch {
	case err != nil && c.d.flaw == "Unlock does not look at its answer":
		return nil
	case err != nil:
		return err
	case q.Op == "release" && !a.OK && !strings.HasSuffix(c.d.flaw, "Unlock is content with nothing"):
		return driver.ErrLost
	}
	return nil
}

// dawdle returns when another has the lock, if one takes it soon.
func (c *claim) dawdle(ctx context.Context) {
	for end := time.Now().Add(2 * c.TTL); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if a, err := c.d.exchange(ctx, c.question("look")); err == nil && !a.OK && a.Token != 0 {
			return
		}
	}
}

func (c *claim) Downgrade(ctx context.Context) error {
	q := c.question("downgrade")
	c.mu.Lock()
	q.Again, c.downgraded = c.downgraded, true
	c.mu.Unlock()
	a, err := c.d.exchange(ctx, q)
	switch {
	case err != nil:
		return err
	case !a.OK:
		return driver.ErrLost
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Shared = true
	return nil
}

// NotifyWait looks whether somebody waits.
func (c *claim) NotifyWait(ctx context.Context, _ func()) (waits bool, next time.Duration, err error) {
	c.mu.Lock()
	given := c.failed && c.d.flaw == "asks who waits until there is no answer"
	c.mu.Unlock()
	if given {
		return false, never, nil
	}
	a, err := c.d.exchange(ctx, c.question("waits"))
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failed = true
	}
	return a.OK, 20 * time.Millisecond, err
}
