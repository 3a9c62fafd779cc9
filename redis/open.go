package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
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
	replicas, err := redisurl.Replicas(u)
	if err != nil {
		return nil, err
	}
	rdb, err := client(ctx, u, replicas.Timeout)
	if err != nil {
		return nil, err
	}
	var opts []DriverOption
	if replicas.N > 0 {
		opts = append(opts, WaitReplicas(replicas.N, replicas.Timeout))
	}
	made, err := NewDriver(rdb, opts...)
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	d := made.(*backend)
	d.owned = true
	d.runner.spare.close() // no application uses up the pool
	return d, nil
}

func client(ctx context.Context, u *driver.URL, replicaTimeout time.Duration) (goredis.UniversalClient, error) {
	o := &goredis.UniversalOptions{
		ContextTimeoutEnabled: true,
		Protocol:              2,  // with 3, go-redis looks before each reply whether it is one
		PipelinePoolSize:      -1, // pool_size is the limit for pipelines, too
		// One refused connection is an answer; the command's own retries are enough.
		DialerRetries:            1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if err := connectTo(u, o); err != nil {
		return nil, err
	}
	if err := errors.Join(timeouts(u, o, replicaTimeout), adapter.Number(u, "pool_size", &o.PoolSize), secure(ctx, u, o)); err != nil {
		return nil, err
	}
	switch {
	case o.MasterName != "":
		return goredis.NewFailoverClient(o.Failover()), nil
	case o.IsClusterMode:
		c := o.Cluster()
		c.ClusterStateReloadInterval = 5 * time.Second
		c.DisableRoutingPolicies = true // which ask for COMMAND, for a user without that right each time
		return goredis.NewClusterClient(c), nil
	default:
		return goredis.NewClient(o.Simple()), nil
	}
}

// connectTo sets what to connect to, one server, the sentinels of one, or the nodes of a cluster,
// and as who.
func connectTo(u *driver.URL, o *goredis.UniversalOptions) error {
	db, err := redisurl.Database(u)
	sentinel, err1 := redisurl.Sentinels(u)
	socket, err2 := redisurl.Socket(u, plainScheme)
	user, password, err3 := adapter.User(u, true)
	name, err4 := redisurl.ClientName(u)
	if err := errors.Join(err, err1, err2, err3, err4, adapter.Bool(u, "cluster", &o.IsClusterMode)); err != nil {
		return err
	}
	o.Username, o.Password, o.ClientName = user, password, name
	o.DB, o.MasterName = db, sentinel.Master
	o.SentinelUsername, o.SentinelPassword = sentinel.Username, sentinel.Password
	port := redisurl.Port
	switch {
	case o.MasterName != "" && o.IsClusterMode:
		return errors.New("parameters master_name and cluster exclude each other: a Redis Cluster needs no sentinels")
	case socket != "" && (o.MasterName != "" || o.IsClusterMode):
		return errors.New("parameter socket names one server: it cannot be used with master_name or cluster")
	case o.MasterName != "":
		port = redisurl.SentinelPort
	case o.IsClusterMode && db != 0:
		return fmt.Errorf("path %q with the parameter cluster: a Redis Cluster has no database but 0", u.Path)
	case !o.IsClusterMode && len(u.Hosts) > 1:
		return fmt.Errorf("%d hosts need the parameter master_name, if they are sentinels, or cluster=true, if they are nodes of a Redis Cluster",
			len(u.Hosts))
	}
	o.Addrs = adapter.Addrs(u, port)
	if socket != "" {
		o.Addrs = []string{socket} // go-redis knows it by its slash
	}
	return nil
}

func timeouts(u *driver.URL, o *goredis.UniversalOptions, replicaTimeout time.Duration) error {
	if o.MasterName != "" || o.IsClusterMode {
		// If one server does not answer, another one might.
		o.ReadTimeout = time.Second + replicaTimeout
	}
	if err := errors.Join(
		adapter.Duration(u, "read_timeout", &o.ReadTimeout), adapter.Duration(u, "write_timeout", &o.WriteTimeout),
	); err != nil {
		return err
	}
	o.DialTimeout = 5 * time.Second
	if o.MasterName != "" {
		// A dial begins with a question to a sentinel. One that hangs is given up, and another one
		// asked, only if the question and its repetition have failed before the dial has.
		o.MaxRetries = 1
		o.DialTimeout = max(o.DialTimeout, 3*o.ReadTimeout)
	}
	return adapter.Duration(u, "dial_timeout", &o.DialTimeout)
}

// secure sets up TLS. Each of several servers has to have a certificate for its own name, unless
// the URL gives one.
func secure(ctx context.Context, u *driver.URL, o *goredis.UniversalOptions) error {
	var name string
	if o.MasterName == "" && !o.IsClusterMode {
		name = adapter.Host(o.Addrs[0])
	}
	config, err := adapter.TLS(ctx, u, plainScheme, name)
	if err != nil || config == nil {
		return err
	}
	o.TLSConfig = config.Config
	// Unlike go-redis's own, this one heeds its context, and reads files anew.
	o.Dialer = adapter.TLSDialer(&net.Dialer{Timeout: o.DialTimeout}, config)
	return nil
}
