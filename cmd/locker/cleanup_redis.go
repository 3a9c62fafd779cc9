package main

import (
	"context"
	"maps"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/redisurl"
)

// redisServers returns clients of the servers that have the locks. The adapters have already checked the URL.
func (d deployment) redisServers(ctx context.Context) ([]goredis.UniversalClient, error) {
	query := d.Query
	o := goredis.UniversalOptions{
		ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MasterName:               query.Get("master_name"),
		SentinelUsername:         query.Get("sentinel_username"), SentinelPassword: query.Get("sentinel_password"),
	}
	o.Username = d.User.Username()
	o.Password, _ = d.User.Password()
	o.IsClusterMode, _ = strconv.ParseBool(query.Get("cluster"))
	var err error
	if o.DB, err = strconv.Atoi("0" + strings.TrimPrefix(d.Path, "/")); err != nil {
		return nil, err
	}
	if d.secure() {
		config, err := adapter.TLS(ctx, &driver.URL{Scheme: d.Scheme, Query: maps.Clone(query)}, "", "")
		if err != nil {
			return nil, err
		}
		o.TLSConfig = config.Config
	}
	port := redisurl.Port
	if o.MasterName != "" {
		port = redisurl.SentinelPort
	}
	o.Addrs = adapter.Addrs(&d.URL, port)
	if socket := query.Get("socket"); socket != "" {
		o.Addrs = []string{socket} // go-redis knows a socket by its slash
	}
	if d.Scheme != "redlock" {
		return []goredis.UniversalClient{goredis.NewUniversalClient(&o)}, nil
	}
	var nodes []goredis.UniversalClient
	for _, addr := range o.Addrs {
		one := o
		one.Addrs = []string{addr}
		nodes = append(nodes, goredis.NewUniversalClient(&one))
	}
	return nodes, nil
}
