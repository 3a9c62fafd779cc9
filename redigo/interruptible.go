package redigo

import (
	"context"
	"net"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker/internal/interrupt"
)

// Interruptible returns an option for the connections of a pool, and one for a Driver over that
// pool, and over no other:
//
//	dial, interruptible := redigo.Interruptible(nil)
//	pool := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
//		return redis.DialContext(ctx, "tcp", "localhost:6379", dial)
//	}}
//	d, err := redigo.NewDriver(pool, interruptible)
//
// connect makes a connection to the server, with TLS if there is to be any; nil means a
// [net.Dialer] with the time-outs of redigo. The goroutine that calls Lock or Unlock then makes the
// request itself, unless the request is sent together with others. Without Interruptible another
// goroutine has to make the request, and redigo makes a third one wait for the reply. With it, the
// end of the context ends the wait. The connection is then closed when the reply has come, or at
// the pool's read timeout. [locker.Open] uses Interruptible. With Interruptible, DialContext has to
// heed its context: otherwise Lock and Unlock do not return before DialContext does.
//
// Interruptible has no effect in three cases: the pool has a Dial in place of DialContext; the pool
// has a TestOnBorrow, which might ignore the context; redigo itself does the TLS (DialUseTLS, or
// DialURL with rediss://). A pool for locks needs no TestOnBorrow: connections that the server has
// closed are replaced.
func Interruptible(connect func(ctx context.Context, network, addr string) (net.Conn, error)) (redis.DialOption, DriverOption) {
	if connect == nil {
		connect = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 5 * time.Minute}).DialContext
	}
	conns := new(interrupt.Conns)
	return redis.DialContextFunc(conns.Dialer(connect)), func(r *runner) error {
		if p := r.pool; p.DialContext != nil && p.TestOnBorrow == nil && p.TestOnBorrowContext == nil {
			r.conns = conns
		}
		return nil
	}
}
