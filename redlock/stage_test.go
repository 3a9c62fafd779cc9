package redlock

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
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
		d := stageDriver(t, stages, opts...)
		defer stages[0].network.Wait()
		defer func() { require.NoError(t, d.Close()) }()
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

// has reports whether name is held at the server.
func (s *stage) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lock(name).left(time.Now().UnixNano())
}

// holding returns how many have x.
func holding(stages []*stage) (n int) {
	for _, s := range stages {
		if s.has("x") {
			n++
		}
	}
	return n
}

// forget has servers restart empty.
func forget(stages ...*stage) {
	for _, s := range stages {
		s.edit("x", (*register).forget)
	}
}

// edit changes a lock behind everybody's back.
func (s *stage) edit(name string, f func(r *register)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.lock(name))
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
