package locker

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Option configures a [Client].
type Option interface{ applyClient(*config) error }

// MutexOption configures a [Mutex]. It is also an Option: given to a Client it is the default of
// the Client's Mutexes.
type MutexOption interface {
	Option
	applyMutex(*settings) error
}

// config is what Options set.
type config struct {
	settings
	prefix    string
	logger    *logger // nil: none
	observer  Observer
	tokenBase uint64
	required  []Guarantee

	leaveHolds bool // at Close
}

// settings is what MutexOptions set.
type settings struct {
	ttl        time.Duration
	renew      bool
	backoffMin time.Duration
	backoffMax time.Duration
	metadata   string
	atLeast    time.Duration // 0: nothing is kept
}

// defaultTTL is the TTL where neither the user nor the Driver has one.
const defaultTTL = 30 * time.Second

// configured returns what opts make of the defaults. The TTL is 0 if none of them sets it.
func configured(opts []Option) (config, error) {
	c := config{
		settings: settings{
			renew:      true,
			backoffMin: 10 * time.Millisecond,
			backoffMax: 250 * time.Millisecond,
		},
		prefix: defaultPrefix,
	}
	for _, o := range opts {
		if o == nil {
			return c, errors.New("nil Option")
		}
		if err := o.applyClient(&c); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (s *settings) apply(opts []MutexOption) error {
	for _, o := range opts {
		if o == nil {
			return errors.New("nil MutexOption")
		}
		if err := o.applyMutex(s); err != nil {
			return err
		}
	}
	return nil
}

type clientOption func(*config) error

func (f clientOption) applyClient(c *config) error { return f(c) }

type mutexOption func(*settings) error

func (f mutexOption) applyClient(c *config) error  { return f(&c.settings) }
func (f mutexOption) applyMutex(s *settings) error { return f(s) }

// WithTTL sets how long a hold lasts unless it is extended. The default is 30 s, unless the
// backend's package has another. A TTL that the backend cannot honour exactly is ErrUnsupported. So
// is one below 5 ms, because the allowance for drift (TTL/100 + 2 ms) would leave too little of it.
//
// A short TTL frees the lock of a crashed holder early; a long one rides out longer outages of
// the backend and longer pauses of the holder.
func WithTTL(d time.Duration) MutexOption {
	return mutexOption(func(s *settings) error {
		if d-drift(d) < d/2 || d <= 0 {
			return fmt.Errorf("%w: TTL %v: must be at least 5ms", ErrUnsupported, d)
		}
		s.ttl = d
		return nil
	})
}

// WithoutRenewal leaves extending to the caller. By default a hold is renewed every TTL/3 until
// its Unlock.
func WithoutRenewal() MutexOption {
	return mutexOption(func(s *settings) error {
		s.renew = false
		return nil
	})
}

// AtLeast keeps the lock for d from its grant on, even if it is unlocked earlier. Use it for a job
// that must not run twice, such as one that several machines start at 3:00:
//
//	report := client.Mutex("report", locker.AtLeast(time.Minute))
//	ran, err := report.TryDo(ctx, makeReport)
//
// Without AtLeast a machine whose clock is late finds the lock free again, and runs the job a
// second time. So d has to be longer than the clocks differ. And d and the TTL together have to be
// shorter than the time between two runs, because a process that ends leaves the lock taken.
//
// It holds for each Unlock, also for that of Do, TryDo and [Hold.Do]; if the job took longer than
// d, the Unlock is an ordinary one. A job that has failed keeps the lock, too: else the next
// machine would run it at once. An Unlock before d has passed makes one request, an Extend, to find
// out whether the hold has lasted. It then ends the hold, and leaves the lock taken: this Client
// releases it when d has passed. Waiters wait until then. Neither the end of the process nor
// [Client.Close] releases it earlier. If the Client is closed, or the process ends, before d has
// passed, nobody releases it: it expires by itself, one TTL after the Unlock at the latest.
//
// For that the TTL of these locks is d and a little more, in whole seconds (of a d below a second
// in whole milliseconds), if [WithTTL] says less. If the backend does not honour such a TTL, the
// Mutex's methods return an error that matches ErrUnsupported, before anything runs. An example is
// ZooKeeper, whose servers allow 40 s by default. On etcd and ZooKeeper a hold may begin with less
// than its TTL, because it shares a session: then it is extended once before Lock returns. If that
// fails, Lock returns the error, and the lock is given back. A d of 0 or less is an error. Do not
// use it with package semaphore, whose waiters take slots and give them back.
func AtLeast(d time.Duration) MutexOption {
	return mutexOption(func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("AtLeast(%v): must be more than 0", d)
		}
		s.atLeast = d
		return nil
	})
}

// covering returns a TTL of which no less than d is left when the allowance for drift is taken off.
func covering(d time.Duration) time.Duration {
	grain := time.Second // which every backend can express
	if d < time.Second {
		grain = time.Millisecond
	}
	const allowed, of = 99, 100
	return ((d+2*time.Millisecond)/allowed*of + grain).Truncate(grain)
}

// WithoutRelease makes [Client.Close] leave its holds to expire at the backend by themselves, as
// [Hold.Abandon] does for one. Lost fires all the same. By default Close releases them, so that
// others have the locks at once.
func WithoutRelease() Option {
	return clientOption(func(c *config) error {
		c.leaveHolds = true
		return nil
	})
}

// WithBackoff sets how long a waiter pauses between two attempts, after an error and where the
// backend must be polled: a random time that grows from about minimum to at most maximum. The
// default is 10 ms and 250 ms. A minimum of 0 or less, or a maximum below it, is an error.
func WithBackoff(minimum, maximum time.Duration) MutexOption {
	return mutexOption(func(s *settings) error {
		if minimum <= 0 || maximum < minimum {
			return fmt.Errorf("backoff from %v to %v: needs 0 < min <= max", minimum, maximum)
		}
		s.backoffMin, s.backoffMax = minimum, maximum
		return nil
	})
}

// WithMetadata sets a text that names the holder of the lock, such as a host, a process or a job.
// People who inspect the backend can read it. It is stored as it is, so do not put secrets into it.
// Keep it short: on Redis it is a part of the name of an owner that waits or shares, and is sent
// again with each renewal, with the release, and with the message that wakes the owner. The default
// is none.
func WithMetadata(metadata string) MutexOption {
	return mutexOption(func(s *settings) error {
		s.metadata = metadata
		return nil
	})
}

const defaultPrefix = "locker"

// WithPrefix sets what the names of this Client begin with at the backend, so that several
// applications can share a backend. The default is "locker", and the empty string means the
// default. Clients of different prefixes never contend, whatever their names. A prefix that is not
// UTF-8 is an error.
func WithPrefix(prefix string) Option {
	return clientOption(func(c *config) error {
		if prefix == "" {
			prefix = defaultPrefix
		}
		if err := checkUTF8("prefix", prefix); err != nil {
			return err
		}
		c.prefix = prefix
		return nil
	})
}

// prefixEscape keeps prefix and name apart at the first colon, so that no two pairs of them
// collide.
var prefixEscape = strings.NewReplacer("%", "%25", ":", "%3A")

// qualified returns name as the backend sees it: the prefix, a colon, the name as it is.
func (c *config) qualified(name string) string {
	return prefixEscape.Replace(c.prefix) + ":" + name
}

// maxTokenBase leaves room for the tokens of any backend: Redis refuses 2^53 and more, and
// revisions are signed.
const maxTokenBase = math.MaxUint64 - math.MaxInt64

// WithTokenBase adds n to every token. Use it after the backend was restored from a backup, or
// exchanged for one whose tokens are smaller: if n is no smaller than the largest token that a
// resource has seen, the resource accepts the new tokens. The default is 0; more than 2^63 is an
// error.
func WithTokenBase(n uint64) Option {
	return clientOption(func(c *config) error {
		if n > maxTokenBase {
			return fmt.Errorf("token base %d: must be at most %d", n, uint64(maxTokenBase))
		}
		c.tokenBase = n
		return nil
	})
}

// Require makes Open and New fail, with an error that matches ErrUnsupported, unless the backend
// promises every guarantee of g without a condition. The error names the guarantee, and the
// condition under which the backend would promise it. A LevelConditional promise is not enough. If
// your deployment meets the condition, leave that guarantee out. An unknown Guarantee is an error,
// too; this error lists the known ones, and does not match ErrUnsupported. Several Requires add up.
func Require(g ...Guarantee) Option {
	return clientOption(func(c *config) error {
		for _, required := range g {
			if !slices.Contains(allGuarantees, required) {
				return fmt.Errorf("unknown guarantee %q: known are %s", required, listGuarantees())
			}
		}
		c.required = append(c.required, g...)
		return nil
	})
}
