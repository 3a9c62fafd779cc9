package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/adapterurl"
	"github.com/go-locker/locker/internal/redisurl"
)

func init() {
	locker.Register("redis", open)
	locker.Register("rediss", open)
}

// open makes a go-redis client of its own of a URL as the package's documentation has it.
func open(_ context.Context, u *locker.URL) (locker.Driver, error) {
	replicas, err := redisurl.Replicas(u)
	if err != nil {
		return nil, err
	}
	rdb, err := client(u, replicas.Timeout)
	if err != nil {
		return nil, err
	}
	var opts []DriverOption
	if replicas.N > 0 {
		opts = append(opts, WaitReplicas(replicas.N, replicas.Timeout))
	}
	d, err := NewDriver(rdb, opts...)
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	d.owned = true
	return d, nil
}

func client(u *locker.URL, replicaTimeout time.Duration) (goredis.UniversalClient, error) {
	o := &goredis.UniversalOptions{
		ContextTimeoutEnabled: true,
		// One refused connection is an answer; the command's own retries are enough.
		DialerRetries:            1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if err := where(u, o); err != nil {
		return nil, err
	}
	if err := errors.Join(timeouts(u, o, replicaTimeout), adapterurl.Number(u, "pool_size", &o.PoolSize), secure(u, o)); err != nil {
		return nil, err
	}
	o.Username, o.Password = adapterurl.User(u)
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

// where sets what the URL says of servers: one, the sentinels of one, or the nodes of a cluster.
func where(u *locker.URL, o *goredis.UniversalOptions) error {
	db, err := redisurl.Database(u)
	if err := errors.Join(err, sentinels(u, o), nodes(u, o)); err != nil {
		return err
	}
	o.DB = db
	port := redisurl.Port
	switch {
	case o.MasterName != "" && o.IsClusterMode:
		return errors.New("parameters master_name and cluster exclude each other: a Redis Cluster needs no sentinels")
	case o.MasterName != "":
		port = redisurl.SentinelPort
	case o.IsClusterMode && db != 0:
		return fmt.Errorf("path %q with the parameter cluster: a Redis Cluster has database 0 alone", u.Path)
	case !o.IsClusterMode && len(u.Hosts) > 1:
		return fmt.Errorf("%d hosts need the parameter master_name, if they are sentinels, or cluster=true, if they are nodes of a Redis Cluster",
			len(u.Hosts))
	}
	o.Addrs = adapterurl.Addrs(u, port)
	return nil
}

func sentinels(u *locker.URL, o *goredis.UniversalOptions) error {
	name, isSentinel := u.Take("master_name")
	if isSentinel && name == "" {
		return errors.New("parameter master_name is empty: it is the name by which the sentinels know the primary")
	}
	o.MasterName = name
	for parameter, field := range map[string]*string{"sentinel_username": &o.SentinelUsername, "sentinel_password": &o.SentinelPassword} {
		value, ok := u.Take(parameter)
		if ok && !isSentinel {
			return fmt.Errorf("parameter %s goes with master_name", parameter)
		}
		*field = value
	}
	if o.SentinelUsername != "" && o.SentinelPassword == "" {
		return errors.New("parameter sentinel_username goes with sentinel_password")
	}
	return nil
}

func nodes(u *locker.URL, o *goredis.UniversalOptions) (err error) {
	o.IsClusterMode, err = boolean(u, "cluster")
	return err
}

// boolean is a parameter, false if it is not there.
func boolean(u *locker.URL, parameter string) (bool, error) {
	value, ok := u.Take(parameter)
	if !ok {
		return false, nil
	}
	b, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("parameter %s=%q is not true or false", parameter, value)
	}
	return b, nil
}

func timeouts(u *locker.URL, o *goredis.UniversalOptions, replicaTimeout time.Duration) error {
	if o.MasterName != "" || o.IsClusterMode {
		// If one server does not answer, another one might.
		o.ReadTimeout = time.Second + replicaTimeout
	}
	if err := errors.Join(
		adapterurl.Duration(u, "read_timeout", &o.ReadTimeout), adapterurl.Duration(u, "write_timeout", &o.WriteTimeout),
	); err != nil {
		return err
	}
	o.DialTimeout = 5 * time.Second
	if o.MasterName != "" {
		// A dial begins with a question to a sentinel. One that hangs is given up, and another one asked, only if
		// the question and its repetition have failed before the dial has.
		o.MaxRetries = 1
		o.DialTimeout = max(o.DialTimeout, 3*o.ReadTimeout)
	}
	return adapterurl.Duration(u, "dial_timeout", &o.DialTimeout)
}

// secure sets up TLS. Each of several servers has to have a certificate for its own name, unless the URL gives one.
func secure(u *locker.URL, o *goredis.UniversalOptions) error {
	if u.Scheme != "rediss" {
		return nil
	}
	var name string
	if o.MasterName == "" && !o.IsClusterMode {
		name = adapterurl.Host(o.Addrs[0])
	}
	var err error
	if o.TLSConfig, err = adapterurl.TLS(u, name); err != nil {
		return err
	}
	// Unlike go-redis's own, this one heeds its context.
	o.Dialer = (&tls.Dialer{NetDialer: &net.Dialer{Timeout: o.DialTimeout}, Config: o.TLSConfig}).DialContext
	return nil
}
