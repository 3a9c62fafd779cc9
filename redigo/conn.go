package redigo

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
)

// As often, and after pauses as long, go-redis sends a request again.
const (
	retries = 3
	pause   = 8 * time.Millisecond // at most, the first time; then twice that
)

// request sends a pipeline, and sends it again on another connection if that one breaks, or is to a
// server that is no primary any more. It returns an answer for each command, which may be a
// redis.Error. lost reports whether commands were sent that got no answer.
func (r *runner) request(ctx context.Context, p *pipeline) (answers []any, lost bool, err error) {
	idle := -1
	for tries := 0; ; {
		var sent bool
		answers, sent, err = r.try(ctx, p)
		if err == nil && !slices.ContainsFunc(answers, isReadOnly) {
			return answers, lost, nil
		}
		lost = lost || sent && err != nil
		if err != nil && (!sent || ctx.Err() != nil) {
			return nil, lost, err
		}
		if idle < 0 {
			idle = r.pool.IdleCount()
		}
		if timeout, ok := errors.AsType[net.Error](err); idle > 0 && !(ok && timeout.Timeout()) {
			idle-- // what has ended this connection has ended those, too
			continue
		}
		if tries == retries || clock.Sleep(ctx, rand.N(pause<<tries)) != nil {
			return answers, lost, err
		}
		tries++
	}
}

// try sends a pipeline once.
func (r *runner) try(ctx context.Context, p *pipeline) (answers []any, sent bool, err error) {
	c, err := r.borrow(ctx)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = c.Close() }() // gives it back
	if err := ctx.Err(); err != nil {
		return nil, false, err // before it is written, which counts releases
	}
	answers, err = p.exchange(ctx, c)
	p.answered(answers)
	if slices.ContainsFunc(answers, isReadOnly) {
		abort(c)
	}
	if over := ended(ctx); err != nil && over != nil {
		err = over
	}
	return answers, true, err
}

// ended returns why ctx has ended, be it that it does in this moment: a connection's deadline,
// which is that of ctx, may pass first.
func ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// exchange sends all in one go, and returns the answers.
func (p *pipeline) exchange(ctx context.Context, c redis.Conn) ([]any, error) {
	// Send of redigo knows no context, and blocks if there is much to say to a server that does not
	// read.
	p.conn = c
	defer send.AtEnd(ctx, p).Stop()
	if len(p.calls) == 1 && p.replicas.N == 0 {
		name, args := p.command(p.calls[0])
		reply, err := c.Do(name, args...)
		if _, refused := reply.(redis.Error); err != nil && !refused {
			return nil, err
		}
		p.answer[0] = reply
		return p.answer[:], nil
	}
	if err := p.send(ctx, c); err != nil {
		return nil, err
	}
	return redis.Values(c.Do(""))
}

// End implements send.Ender.
func (p *pipeline) End() { abort(p.conn) }

// abort breaks a pooled connection, so that what is under way on it fails, and the pool drops it.
// It is what receiving after the end of a context does, and may be called beside Send and
// DoContext.
func abort(c redis.Conn) {
	ended, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	_, _ = redis.ReceiveContext(c, ended)
}

// borrow takes a connection from the pool, or makes one if the pool is used up.
func (r *runner) borrow(ctx context.Context) (c redis.Conn, err error) {
	defer func() {
		// A pool that was closed, has Wait set, and is asked for a connection when ctx has just
		// ended.
		if p, ok := recover().(error); ok && p.Error() == "send on closed channel" {
			c, err = nil, errors.New("redigo: get on closed pool")
		} else if ok {
			panic(p)
		}
	}()
	if r.usedUp() {
		return r.dial(ctx)
	}
	c, err = r.pool.GetContext(ctx)
	if errors.Is(err, redis.ErrPoolExhausted) {
		return r.dial(ctx)
	}
	return c, err
}

// usedUp reports whether a pool would have a request wait for any time, because the application has
// its connections.
func (r *runner) usedUp() bool {
	p := r.pool
	if r.owned || !p.Wait || p.MaxActive == 0 {
		return false
	}
	s := p.Stats()
	return s.IdleCount == 0 && s.ActiveCount >= p.MaxActive
}

// dial makes a connection as the pool does, which is none of the pool's.
func (r *runner) dial(ctx context.Context) (redis.Conn, error) {
	if r.pool.DialContext != nil {
		return r.pool.DialContext(ctx)
	}
	return r.pool.Dial()
}

// isReadOnly reports whether an answer is that of a replica, which this server was not when it was
// dialled.
func isReadOnly(answer any) bool {
	err, ok := answer.(redis.Error)
	return ok && script.IsReadOnly(string(err))
}
