// Package memory keeps locks in the memory of one process: for tests of programs that take a lock,
// for runnable examples, and where a single process is all there is. It registers mem://.
//
//	client, err := locker.Open(ctx, "mem://orders")
//
// Clients of a process share their locks if their URLs have the same host, or if none of their URLs
// has a host. Nobody else shares them. The URL takes no user, port, path or parameter beyond those
// that every backend has.
//
// It promises all that the contract asks: waiters are woken in the order in which they came, and
// tokens rise. Tokens also rise from one run of the program to the next, unless the machine's clock
// is set back.
package memory

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

func init() {
	driver.Register("mem", open)
}

func open(_ context.Context, u *driver.URL) (driver.Driver, error) {
	space := strings.Join(u.Hosts, ",")
	if u.User != nil || strings.ContainsAny(space, ":,") || (u.Path != "" && u.Path != "/") {
		return nil, errors.New("mem:// takes a host alone, the name of the space, as in mem://orders")
	}
	return NewDriver(InSpace(space)), nil
}

// New makes a Client that shares its locks with the Clients of the URL mem://, without a host.
func New(opts ...locker.Option) (*locker.Client, error) {
	return locker.New(NewDriver(), opts...)
}

// backend is the Driver.
type backend struct{ space *space }

// DriverOption is an option of [NewDriver].
type DriverOption func(*backend)

// InSpace makes the Driver share its names with the Drivers of the same space, as the host of a
// mem:// URL does. The default is the space "".
func InSpace(name string) DriverOption {
	return func(d *backend) { d.space = spaceOf(name) }
}

// NewDriver makes a Driver. It never fails.
func NewDriver(opts ...DriverOption) driver.Driver {
	d := &backend{space: spaceOf("")}
	for _, o := range opts {
		o(d)
	}
	return d
}

var (
	_ driver.Driver       = (*backend)(nil)
	_ driver.Operator     = (*backend)(nil)
	_ driver.Downgrader   = (*claim)(nil)
	_ driver.WaitNotifier = (*claim)(nil)
)

// spaces are the process's own. One stays when its last Client closes: it is empty then.
var spaces sync.Map // of *space, by name

func spaceOf(name string) *space {
	s, _ := spaces.LoadOrStore(name, &space{locks: map[string]*lock{}})
	return s.(*space)
}

// lastToken starts at the clock, in microseconds, so that tokens go on rising after a restart: a
// process that takes fewer than a million locks a second stays behind the clock.
var lastToken atomic.Uint64

func init() {
	lastToken.Store(uint64(time.Now().UnixMicro()))
}

// lastNumber is that of the latest claim.
var lastNumber atomic.Uint64

// Claim implements driver.Driver.
func (d *backend) Claim(req driver.Request) driver.Claim {
	return &claim{Request: req, space: d.space, number: lastNumber.Add(1)}
}

// Inspect implements driver.Operator. Once a lock is released its last token is not remembered.
func (d *backend) Inspect(_ context.Context, name string) (driver.State, error) {
	return d.space.look(name), nil
}

// Guarantees promises everything, except the guarantees about failures of servers.
func (d *backend) Guarantees() driver.Guarantees {
	const none = "there is one process, and no server to fail over to"
	return driver.Guarantees{
		driver.Exclusive:      {Level: driver.LevelYes},
		driver.Failover:       {Level: driver.LevelNo, Condition: none},
		driver.Fencing:        {Level: driver.LevelYes},
		driver.FencingDurable: {Level: driver.LevelNo, Condition: none},
		driver.Ordered:        {Level: driver.LevelYes},
		driver.Woken:          {Level: driver.LevelYes},
	}
}

// Close does nothing: the Client has released its leases before.
func (d *backend) Close() error { return nil }
