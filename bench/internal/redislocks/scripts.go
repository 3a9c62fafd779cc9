package redislocks

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/wire"
	"github.com/go-locker/locker/redis"
)

// recorder keeps the scripts that are run, by how many arguments they take.
type recorder map[int]string // their SHA-1

func (recorder) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (recorder) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (r recorder) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		args := cmd.Args()
		switch args[0] {
		case "evalsha":
			r[len(args)] = args[1].(string)
		case "eval":
			sum := sha1.Sum([]byte(args[1].(string)))
			r[len(args)] = hex.EncodeToString(sum[:])
		}
		return next(ctx, cmd)
	}
}

// What locker's scripts are called with, behind the script and the number of keys.
const (
	scriptKeys  = 3
	takeArgs    = 3 + scriptKeys + 4 // owner, expires, due, meta
	releaseArgs = 3 + scriptKeys + 3 // owner, token, sent
	anyToken    = 1700000000000000
	farDue      = "90071992547409919007199254740991" + "0/0:"
)

// scriptsOf has locker lock a name once, and returns the scripts of that.
func scriptsOf(rdb *goredis.Client, ttl time.Duration) (scripts recorder, err error) {
	scripts = recorder{}
	own := goredis.NewClient(rdb.Options())
	defer own.Close()
	own.AddHook(scripts)
	c, err := redis.New(own, locker.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	m := c.Mutex("scripts")
	if err := m.Lock(context.Background()); err != nil {
		return nil, err
	}
	if err := m.Unlock(context.Background()); err != nil {
		return nil, err
	}
	if scripts[takeArgs] == "" || scripts[releaseArgs] == "" {
		return nil, fmt.Errorf("the scripts take other arguments: %v", scripts)
	}
	return scripts, nil
}

// openScripts is no lock: the scripts of one, which nobody calls again, bounds or renews.
func openScripts(pipelined bool) func([]string, *wire.Tally, time.Duration) (*contend.Client, error) {
	return func(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
		rdb := newGoRedis(addrs[0], sent)
		scripts, err := scriptsOf(rdb, ttl)
		if err != nil {
			_ = rdb.Close()
			return nil, err
		}
		to, err := scripterOf(rdb, pipelined)
		if err != nil {
			return nil, err
		}
		return &contend.Client{
			Waiter: func(name string) contend.LockFunc {
				owner := "owner"
				keys := []string{"{" + name + "}", "{" + name + "}:queue", "{" + name + "}:readers"}
				unlock := func(ctx context.Context) error {
					released, err := to.EvalSha(ctx, scripts[releaseArgs], keys, owner, anyToken, 0).Int64()
					if err == nil && released != 1 {
						err = fmt.Errorf("the release said %v", released)
					}
					return err
				}
				return func(ctx context.Context) (contend.UnlockFunc, error) {
					return unlock, to.EvalSha(ctx, scripts[takeArgs], keys, owner, (ttl + time.Minute).Milliseconds(), farDue, "").Err()
				}
			},
			Close: func() { _ = rdb.Close() },
		}, nil
	}
}
