package redis

import (
	"cmp"
	"context"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript"
	"github.com/go-locker/locker/internal/redisurl"
)

// plainScheme is the scheme without TLS.
const plainScheme = "redis"

func init() {
	driver.Register(plainScheme, open)
	driver.Register(plainScheme+"s", open)
}

// open makes a go-redis client of its own of a URL as the package's documentation has it.
func open(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	t, err := redisurl.Read(ctx, u, plainScheme, true)
	if err != nil {
		return nil, err
	}
	o := options(t)
	rdb := client(o)
	var opts []DriverOption
	if t.Replicas.N > 0 {
		opts = append(opts, WaitReplicas(t.Replicas.N, t.Replicas.Timeout))
	}
	made, err := NewDriver(rdb, opts...)
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	d := made.(*backend)
	d.owned = true
	d.runner.spare.alone = true
	if t.Master != "" {
		redisscript.Watch(d.scripts, t.Addrs, func(ctx context.Context, addr string) (map[string]string, error) {
			sentinel := goredis.NewSentinelClient(&goredis.Options{
				Addr: addr, Username: t.Sentinel.Username, Password: t.Sentinel.Password,
				Dialer: o.Dialer, DialTimeout: o.DialTimeout, DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
			})
			defer func() { _ = sentinel.Close() }()
			return sentinel.Master(ctx, t.Master).Result()
		})
	}
	return d, nil
}

func options(t *redisurl.Target) *goredis.UniversalOptions {
	o := &goredis.UniversalOptions{
		Addrs: t.Addrs, DB: t.DB, MasterName: t.Master, IsClusterMode: t.Cluster,
		Username: t.User, Password: t.Password, ClientName: t.ClientName,
		SentinelUsername: t.Sentinel.Username, SentinelPassword: t.Sentinel.Password,
		PoolSize: t.PoolSize, ReadTimeout: t.ReadTimeout, WriteTimeout: t.WriteTimeout,
		ContextTimeoutEnabled: true,
		PipelinePoolSize:      -1, // pool_size is the limit for pipelines, too
		Protocol:              2,  // with 3, go-redis looks before each reply whether it is one
		// One refused connection is an answer; the command's own retries are enough.
		DialerRetries:            1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if t.Master != "" || t.Cluster {
		// If one server does not answer, another one might.
		o.ReadTimeout = cmp.Or(t.ReadTimeout, time.Second+t.Replicas.Timeout)
	}
	o.DialTimeout = 5 * time.Second
	if t.Master != "" {
		// A dial begins with a question to a sentinel. One that hangs is given up, and another one
		// asked, only if the question and its repetition have failed before the dial has.
		o.MaxRetries = 1
		o.DialTimeout = max(o.DialTimeout, 3*o.ReadTimeout)
	}
	o.DialTimeout = cmp.Or(t.DialTimeout, o.DialTimeout)
	if dial := t.DialTLS(o.DialTimeout); dial != nil {
		o.Dialer = dial
	}
	return o
}

func client(o *goredis.UniversalOptions) goredis.UniversalClient {
	if !o.IsClusterMode {
		return goredis.NewUniversalClient(o)
	}
	c := o.Cluster()
	c.ClusterStateReloadInterval = 5 * time.Second
	c.DisableRoutingPolicies = true // which ask for COMMAND, for a user without that right each time
	return goredis.NewClusterClient(c)
}
