package redlock

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
)

// path is what happens to one request.
type path struct {
	there, back time.Duration
	lost        bool          // it does not arrive
	mute        bool          // its answer does not
	err         error         // the server's answer; nothing is done
	double      time.Duration // after which it arrives again; 0: it does not
	heedless    bool          // the client library ends no request with its context,
	patience    time.Duration // but after this, if no answer is to come; 0: never
	late        time.Duration // how long after the end of its context one returns that heeds it
}

// stage is a server of a virtual network. It does what has reached it whether or not anybody still
// waits.
type stage struct {
	addr string

	mu    sync.Mutex
	locks map[string]*register
	path  func(v verb, name string) path // nil: at once
	down  bool
	start time.Time
	rate  float64       // of its clock, against the true one; 0: the same
	ahead time.Duration // of its clock
	count [verbs]int

	tells bool   // who it is: its id, or else its address; what does not tell is not asked
	id    string // that another has, too: it is the same server

	batches int           // of extensions
	short   time.Duration // taken off the TTL of a grant, whose request arrived late
	traced  any           // what the context of the latest request has

	clients *atomic.Uint64  // of all stages
	network *sync.WaitGroup // requests on their way
}

var errRefused = errors.New("connection refused")

type ctxKey struct{}

func newStages(n int) []*stage {
	stages := make([]*stage, n)
	clients, network := new(atomic.Uint64), new(sync.WaitGroup)
	for i := range stages {
		stages[i] = &stage{addr: string(rune('a'+i)) + ":1", locks: map[string]*register{}, start: time.Now(), clients: clients, network: network}
	}
	return stages
}

// clientsOf makes a client of each.
func clientsOf(stages []*stage) (nodes []driver.Driver) {
	for _, s := range stages {
		nodes = append(nodes, newClient(s))
	}
	return nodes
}

// stageDriver makes a Driver as a process of its own would have it.
func stageDriver(t *testing.T, stages []*stage, opts ...DriverOption) *backend {
	t.Helper()
	d, err := NewDriver(clientsOf(stages), opts...)
	require.NoError(t, err)
	return d.(*backend)
}

func askFor(name string) driver.Request { return driver.Request{Name: name, TTL: ttl} }

const ttl = 10 * time.Second // and so 500 ms for a node

// play runs f on a Driver over n stages, in virtual time.
func play(t *testing.T, n int, f func(t *testing.T, d *backend, stages []*stage), opts ...DriverOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		stages := newStages(n)
		t.Cleanup(stages[0].network.Wait) // when all Drivers are closed
		d := stageDriver(t, stages, opts...)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		f(t, d, stages)
	})
}

// on sets what happens to requests from now on.
func (s *stage) on(f func(v verb, name string) path) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.path = f
}

// always has one thing happen to all requests.
func (s *stage) always(p path) { s.on(func(verb, string) path { return p }) }

// only has one verb take a path of its own.
func (s *stage) only(v verb, p path) {
	s.on(func(other verb, _ string) path {
		if other == v {
			return p
		}
		return path{}
	})
}

func (s *stage) counted(v verb) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[v]
}

// total is the number of requests to all the stages.
func total(stages []*stage) int {
	n := 0
	for _, s := range stages {
		for v := range verbs {
			n += s.counted(v)
		}
	}
	return n
}

func (s *stage) lock(name string) *register {
	r := s.locks[name]
	if r == nil {
		r = &register{}
		s.locks[name] = r
	}
	return r
}

// owner returns who has x at the server, or 0.
func (s *stage) owner() (owner uint64) {
	s.edit(func(r *register) {
		if r.left(time.Now().UnixNano()) {
			owner = r.owner
		}
	})
	return owner
}

// holding returns how many have x.
func holding(stages []*stage) (n int) {
	for _, s := range stages {
		if s.owner() != 0 {
			n++
		}
	}
	return n
}

// forget has the server restart empty.
func (s *stage) forget() { s.edit((*register).forget) }

// edit changes x at servers behind everybody's back.
func edit(stages []*stage, f func(r *register)) {
	for _, s := range stages {
		s.edit(f)
	}
}

// always has one thing happen to all requests to servers.
func always(stages []*stage, p path) {
	for _, s := range stages {
		s.always(p)
	}
}

// edit changes x behind everybody's back.
func (s *stage) edit(f func(r *register)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.lock("x"))
}

// hung never answers, and does nothing.
var hung = path{lost: true}

// now is the server's clock.
func (s *stage) now() int64 {
	passed := float64(time.Since(s.start))
	return s.start.Add(s.ahead + time.Duration(passed*cmp.Or(s.rate, 1))).UnixNano()
}

// arrive has the server do what it is asked.
func (s *stage) arrive(p path, name string, script func(r *register, now int64)) (clock int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch clock = s.now(); {
	case p.err != nil:
		return clock, p.err
	case s.down:
		return clock, errRefused
	}
	script(s.lock(name), clock)
	return clock, nil
}

// verb is what a node is asked to do.
type verb int

const (
	propose verb = iota
	raiseIt
	extendIt
	releaseIt
	identifyIt
	verbs
)

// stageClient is a client library's connection to a stage.
type stageClient struct {
	*stage
	quorum.Node // nil: its other methods are not called

	id       uint64
	draws    func(what, attempt, number uint64) path // nil: as the stage says
	attempts atomic.Uint64
	oneOwner bool // for all attempts: that is wrong
	noRaise  bool // it says that it has raised a token, and has not: that is wrong
	closed   atomic.Bool
	closeErr error

	mu       sync.Mutex
	clock    int64 // of the server, in an answer
	clockAt  time.Time
	identity atomic.Uint64
}

func newClient(s *stage) *stageClient { return &stageClient{stage: s, id: s.clients.Add(1)} }

func (c *stageClient) CheckTTL(time.Duration) error { return nil }
func (c *stageClient) Address() string              { return c.addr }

func (c *stageClient) Close() error {
	c.closed.Store(true)
	return c.closeErr
}

func (c *stageClient) Identify(ctx context.Context) (string, error) {
	if c.draws == nil && !c.tells {
		return "", nil
	}
	_, err := c.run(ctx, c.meets(ctx, identifyIt, "", c.identity.Add(1), 0), "", func(bool, *register, int64) {})
	return cmp.Or(c.stage.id, c.addr), err
}

func (c *stageClient) ServerTime() (now time.Time, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Unix(0, c.clock).Add(time.Since(c.clockAt)), !c.clockAt.IsZero()
}

func (c *stageClient) ExtendAll(ctx context.Context, leases []driver.Claim, ttl time.Duration) []error {
	c.stage.mu.Lock()
	c.batches++
	c.stage.mu.Unlock()
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Extend(ctx, ttl)
	}
	return errs
}

// meets counts a request, and returns what happens to it.
func (c *stageClient) meets(ctx context.Context, v verb, name string, attempt, number uint64) path {
	s := c.stage
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[v]++
	s.traced = ctx.Value(ctxKey{})
	switch {
	case c.draws != nil:
		return c.draws(uint64(v), attempt, number)
	case s.path != nil:
		return s.path(v, name)
	}
	return path{}
}

// run takes a script to the server and its answer back. ran is true if it may have run in spite of
// err. The script is run again, not as the first, where the request is doubled.
func (c *stageClient) run(ctx context.Context, p path, name string, script func(first bool, r *register, now int64)) (ran bool, err error) {
	if p.double > 0 {
		c.network.Go(func() {
			time.Sleep(p.double)
			_, _ = c.arrive(p, name, func(r *register, now int64) { script(false, r, now) })
		})
	}
	answered, sent := make(chan error, 1), time.Now()
	c.network.Go(func() {
		if p.lost {
			return
		}
		time.Sleep(p.there)
		clock, err := c.arrive(p, name, func(r *register, now int64) { script(true, r, now) })
		time.Sleep(p.back)
		if p.mute {
			return
		}
		if err == nil {
			c.mu.Lock()
			c.clock, c.clockAt = clock, sent
			c.mu.Unlock()
		}
		answered <- err
	})
	ended := ctx.Done()
	if p.heedless {
		ended = nil
	}
	var over <-chan time.Time
	if p.patience > 0 && (p.lost || p.mute) {
		over = time.After(p.patience)
	}
	select {
	case err = <-answered:
		return err == nil || p.double > 0, err
	case <-ended:
		time.Sleep(p.late)
		return true, ctx.Err()
	case <-over:
		return true, context.DeadlineExceeded
	}
}

func (c *stageClient) Candidate(req driver.Request, place uint64, woken func(bool)) quorum.Candidate {
	l := &stageCandidate{client: c, req: req, attempt: c.attempts.Add(1), woken: woken}
	l.owner = c.id<<32 + l.attempt
	if c.oneOwner {
		l.owner = c.id << 32
	}
	l.entry = inQueue{owner: l.owner, place: place, process: c.id, tell: func() {
		p := path{there: time.Millisecond}
		if c.draws != nil {
			p = c.draws(ofMessage, l.attempt, l.told.Add(1))
		}
		if !p.lost {
			l.wakeAfter(p.there, true)
		}
	}}
	return l
}

// stageCandidate is the client's side of an owner.
type stageCandidate struct {
	driver.Claim   // nil: a quorum never calls Ask
	client         *stageClient
	req            driver.Request
	owner, attempt uint64
	entry          inQueue
	woken          func(kept bool) // nil: it does not wait
	requests, told atomic.Uint64
	token          atomic.Uint64
	until          atomic.Pointer[time.Time]
	releases       atomic.Int64
	known, over    atomic.Bool
}

// run has a script run for l, and reports whether that may have happened.
func (l *stageCandidate) run(ctx context.Context, v verb, script func(first bool, r *register, now int64)) (ran bool, err error) {
	return l.client.run(ctx, l.client.meets(ctx, v, l.req.Name, l.attempt, l.requests.Add(1)), l.req.Name, script)
}

// succeeds is run for a script that reports whether the lock was there.
func (l *stageCandidate) succeeds(ctx context.Context, v verb, script func(r *register, now int64) bool) error {
	var ok atomic.Bool
	_, err := l.run(ctx, v, func(first bool, r *register, now int64) {
		if done := script(r, now); first {
			ok.Store(done)
		}
	})
	if err == nil && !ok.Load() {
		return driver.ErrLost
	}
	return err
}

func (l *stageCandidate) wakeAfter(d time.Duration, kept bool) {
	time.AfterFunc(d, func() {
		if !l.over.Load() {
			l.woken(kept)
		}
	})
}

func (l *stageCandidate) Propose(ctx context.Context, token uint64) (earlier bool, err error) {
	var answer atomic.Pointer[turnAnswer]
	sent := time.Now()
	ran, err := l.run(ctx, propose, func(first bool, r *register, now int64) {
		var a turnAnswer
		if l.woken != nil {
			a = r.wait(now, l.entry, int64(l.req.TTL), token)
		} else {
			a.granted, a.accepted = r.take(now, l.owner, int64(l.req.TTL), token)
		}
		if first {
			answer.Store(&a)
		}
	})
	a := answer.Load()
	switch {
	case err != nil:
		if ran {
			l.known.Store(true)
		}
		return false, err
	case a.granted:
		l.known.Store(true)
		l.token.Store(a.accepted)
		until := sent.Add(l.req.TTL - l.client.short)
		l.until.Store(&until)
		return false, nil
	case l.woken == nil:
		return false, driver.ErrHeld
	}
	l.known.Store(true)
	look := time.Second
	if a.left > 0 && a.left < look {
		look = a.left + time.Millisecond
	}
	l.wakeAfter(look, false)
	return a.earlier, driver.ErrHeld
}

func (l *stageCandidate) Known() bool   { return l.known.Load() }
func (l *stageCandidate) Token() uint64 { return l.token.Load() }

func (l *stageCandidate) Validity() time.Duration {
	if until := l.until.Load(); until != nil {
		return time.Until(*until)
	}
	return 0
}

func (l *stageCandidate) Extend(ctx context.Context, ttl time.Duration) error {
	return l.succeeds(ctx, extendIt, func(r *register, now int64) bool { return r.extend(now, l.owner, int64(ttl)) })
}

func (l *stageCandidate) Raise(ctx context.Context, token uint64) error {
	if l.client.noRaise {
		return nil
	}
	var far atomic.Bool
	err := l.succeeds(ctx, raiseIt, func(r *register, now int64) bool {
		far.Store(r.tooFar(token))
		return r.raise(now, l.owner, token)
	})
	switch {
	case err == nil:
		l.token.Store(token)
	case far.Load():
		return driver.ErrUnsupported
	}
	return err
}

func (l *stageCandidate) Release(ctx context.Context) error {
	l.over.Store(true)
	again := l.releases.Add(1) > 1
	return l.succeeds(ctx, releaseIt, func(r *register, now int64) bool { return r.release(now, l.owner, l.Token(), again) })
}
