package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
)

// tutorial is a lock of Redis's own SET NX PX, with a random owner and Lua to compare it, or with a flaw.
type tutorial struct {
	rdb  *goredis.Client
	name string
	ttl  time.Duration
	flaw string
	skew time.Duration // of this process's clock

	ctx   context.Context // of the renewal; nil: none
	stop  context.CancelFunc
	owner string

	mu    sync.Mutex
	held  bool
	token uint64
	until time.Time
}

func (l *tutorial) Lock(ctx context.Context) error {
	for {
		before := time.Now()
		ok, err := l.take(ctx)
		if ok && err == nil {
			return l.begin(before)
		}
		if ctx.Err() != nil {
			l.forget(err)
			return errors.Join(ctx.Err(), context.Cause(ctx), locker.ErrHeld)
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// forget removes what an attempt that was interrupted may have set. No tutorial has this.
func (l *tutorial) forget(err error) {
	if err != nil && l.flaw == "" {
		ctx, cancel := context.WithTimeout(context.Background(), l.ttl)
		defer cancel()
		_ = deleteOwn.Run(ctx, l.rdb, []string{l.name}, l.owner).Err()
	}
}

// take is one attempt.
func (l *tutorial) take(ctx context.Context) (bool, error) {
	l.owner = fmt.Sprint(time.Now().UnixNano(), &l.mu)
	switch l.flaw {
	case "SETNX without expiry":
		return l.rdb.SetNX(ctx, l.name, l.owner, 0).Result()
	case "SETNX, then EXPIRE":
		ok, err := l.rdb.SetNX(ctx, l.name, l.owner, 0).Result()
		if err != nil || !ok {
			return false, err
		}
		time.Sleep(time.Millisecond) // a moment in which much can happen
		return l.rdb.PExpire(ctx, l.name, l.ttl).Result()
	case "owner is process and goroutine":
		l.owner = fmt.Sprintf("%d:%s", os.Getpid(), goroutine())
		ok, err := l.rdb.SetNX(ctx, l.name, l.owner, l.ttl).Result()
		if err != nil || ok {
			return ok, err
		}
		return l.rdb.Get(ctx, l.name).Val() == l.owner, nil // reentrant
	case "time as value, by the local clock":
		return l.takeByClock(ctx)
	default:
		return l.rdb.SetNX(ctx, l.name, l.owner, l.ttl).Result()
	}
}

// goroutine is the number in the first line of a stack trace.
func goroutine() string {
	stack := make([]byte, 64)
	return string(bytes.Fields(stack[:runtime.Stack(stack, false)])[1])
}

func (l *tutorial) clock() time.Time { return time.Now().Add(l.skew) }

// takeByClock is the recipe that the documentation of SETNX once gave.
func (l *tutorial) takeByClock(ctx context.Context) (bool, error) {
	until := strconv.FormatInt(l.clock().Add(l.ttl).UnixMilli(), 10)
	if ok, err := l.rdb.SetNX(ctx, l.name, until, 0).Result(); err != nil || ok {
		return ok, err
	}
	old, err := l.rdb.Get(ctx, l.name).Int64()
	if errors.Is(err, goredis.Nil) || err == nil && old >= l.clock().UnixMilli() {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	got, err := l.rdb.Do(ctx, "GETSET", l.name, until).Int64()
	return got == old, err
}

func (l *tutorial) begin(before time.Time) error {
	token, err := l.rdb.Incr(context.Background(), l.name+":token").Uint64()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.token, l.until = true, token, before.Add(l.ttl)
	if l.ctx != nil {
		ctx, stop := context.WithCancel(l.ctx)
		l.stop = stop
		go l.renew(ctx)
	}
	return err
}

func (l *tutorial) renew(ctx context.Context) {
	for ctx.Err() == nil {
		if l.flaw != "renewal ignores the answer" {
			if l.Extend(ctx) != nil {
				return
			}
		} else {
			l.rdb.PExpire(ctx, l.name, l.ttl)
			l.mu.Lock()
			l.until = time.Now().Add(l.ttl)
			l.mu.Unlock()
		}
		select {
		case <-time.After(l.ttl / 3):
		case <-ctx.Done():
		}
	}
}

var (
	deleteOwn = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	extendOwn = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`)
)

func (l *tutorial) Unlock(ctx context.Context) error {
	l.mu.Lock()
	held, until := l.held, l.until
	l.held, l.token = false, 0
	l.mu.Unlock()
	if !held {
		return locker.ErrNotHeld
	}
	if l.stop != nil {
		l.stop()
	}
	n, err := l.remove(ctx, until)
	if err == nil && n == 0 {
		return locker.ErrLost
	}
	return err
}

func (l *tutorial) remove(ctx context.Context, until time.Time) (int64, error) {
	switch l.flaw {
	case "bare DEL":
		return l.rdb.Del(ctx, l.name).Result()
	case "GET, then DEL":
		if l.rdb.Get(ctx, l.name).Val() != l.owner {
			return 0, nil
		}
		l.pause(ctx, l.owner)
		return l.rdb.Del(ctx, l.name).Result()
	case "time as value, by the local clock":
		if !time.Now().Before(until) {
			return 0, nil
		}
		l.pause(ctx, l.rdb.Get(ctx, l.name).Val())
		return l.rdb.Del(ctx, l.name).Result()
	default:
		n, err := deleteOwn.Run(ctx, l.rdb, []string{l.name}, l.owner).Int64()
		if !time.Now().Before(until) {
			n = 0
		}
		return n, err
	}
}

// pause is an unlucky one: until another has taken over, if one does soon.
func (l *tutorial) pause(ctx context.Context, was string) {
	for end := time.Now().Add(2 * l.ttl); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if now := l.rdb.Get(ctx, l.name).Val(); now != "" && now != was {
			return
		}
	}
}

func (l *tutorial) Extend(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		return locker.ErrNotHeld
	}
	if l.flaw == "time as value, by the local clock" {
		return l.rdb.Set(ctx, l.name, l.clock().Add(l.ttl).UnixMilli(), 0).Err()
	}
	now := time.Now()
	n, err := extendOwn.Run(ctx, l.rdb, []string{l.name}, l.owner, l.ttl.Milliseconds()).Int64()
	if err == nil && (n == 0 || !now.Before(l.until)) {
		return locker.ErrLost
	}
	if err == nil {
		l.until = now.Add(l.ttl)
	}
	return err
}

func (l *tutorial) FencingToken() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.until) {
		return 0
	}
	return l.token
}
