package redis

import (
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/interrupt"
)

// Interruptible changes the Dialer of o, and returns an option for a Driver over the Client that is
// made of o afterwards, and over no other:
//
//	interruptible := redis.Interruptible(o)
//	d, err := redis.NewDriver(goredis.NewClient(o), interruptible)
//
// A request that meets no other is then made by the goroutine that calls Lock or Unlock, which
// saves two switches between goroutines. When the context ends, its connection is interrupted and
// closed. Without Interruptible such a call has to leave its request to another goroutine, because
// go-redis waits for a reply whatever the context does.
//
// Open does so for a URL that names one server. A hook of the client that heeds no context keeps
// Lock and Unlock from returning when theirs ends.
func Interruptible(o *goredis.Options) DriverOption {
	conns, dial := new(interrupt.Conns), o.Dialer
	if dial == nil {
		defaults := *o
		if defaults.DialTimeout == 0 {
			defaults.DialTimeout = 5 * time.Second
		}
		dial = goredis.NewDialer(&defaults)
	}
	o.Dialer = conns.Dialer(dial)
	return func(r *runner) error {
		if _, ok := r.rdb.(*goredis.Client); !ok {
			return fmt.Errorf("%w: Interruptible with a %T: it has to be a Client", driver.ErrUnsupported, r.rdb)
		}
		r.conns = conns
		return nil
	}
}
