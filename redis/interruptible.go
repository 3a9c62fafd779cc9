package redis

import (
	"context"
	"fmt"
	"net"
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
// The goroutine that calls Lock or Unlock then makes the request itself, unless the request is sent
// together with others. This saves two switches between goroutines. Without Interruptible another
// goroutine has to make the request, because go-redis waits for a reply whatever the context does.
// With it, the end of the context ends the wait. The connection is then closed when the reply has
// come, or at its ReadTimeout. But if the client has a hook that does not heed its context, Lock
// and Unlock do not return before that hook. [locker.Open] uses Interruptible, except for a Cluster
// with WaitReplicas.
//
// Interruptible has no effect if o has an OnConnect, a function for credentials, a Limiter, a
// PushNotificationProcessor, or a WriteBufferSize below the default. go-redis calls the first four
// before a request, and they might ignore the context, or take its end for a failure of the server.
// With a small buffer it may send a request in several parts.
func Interruptible(o *goredis.Options) DriverOption {
	conns := new(interrupt.Conns)
	if callsBack(o) || o.WriteBufferSize != 0 && o.WriteBufferSize < writeBufferSize {
		conns = nil
	} else {
		o.Dialer = conns.Dialer(dialerOf(o))
	}
	return func(r *runner) error {
		if _, ok := r.rdb.(*goredis.Client); !ok {
			return fmt.Errorf("%w: Interruptible with a %T: it has to be a Client", driver.ErrUnsupported, r.rdb)
		}
		r.conns = conns
		return nil
	}
}

// interruptibleDialer is Interruptible for the other clients of Open, whose options call nothing
// back. go-redis asks sentinels when it dials, in a goroutine of its own; it asks the nodes of a
// Cluster about their slots before the first request, and later in goroutines of its own.
func interruptibleDialer(dialer *func(ctx context.Context, network, addr string) (net.Conn, error), timeout time.Duration) DriverOption {
	conns := new(interrupt.Conns)
	*dialer = conns.Dialer(dialerOf(&goredis.Options{Dialer: *dialer, DialTimeout: timeout}))
	return func(r *runner) error {
		r.conns = conns
		return nil
	}
}

// dialerOf returns what go-redis dials by.
func dialerOf(o *goredis.Options) interrupt.Dialer {
	if o.Dialer != nil {
		return o.Dialer
	}
	defaults := *o
	if defaults.DialTimeout == 0 {
		defaults.DialTimeout = 5 * time.Second
	}
	return goredis.NewDialer(&defaults)
}

// callsBack reports whether go-redis calls functions of the application's on the way to a request.
// It calls a Dialer in a goroutine of its own.
func callsBack(o *goredis.Options) bool {
	return o.OnConnect != nil || o.CredentialsProvider != nil || o.CredentialsProviderContext != nil ||
		o.StreamingCredentialsProvider != nil || o.Limiter != nil || o.PushNotificationProcessor != nil
}

// writeBufferSize is go-redis's default. In a smaller buffer a request may be cut anywhere.
const writeBufferSize = 32 << 10
