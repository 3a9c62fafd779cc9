package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/adapterurl"
	"github.com/go-locker/locker/internal/redisscript"
	"github.com/go-locker/locker/internal/redisurl"
)

// prefixEscape is that of package locker.
var prefixEscape = strings.NewReplacer("%", "%25", ":", "%3A")

// cleanUp removes what the locks have left, and returns what stays and for how long, or nothing. Redis alone keeps
// something of a lock that nobody holds: the last token, so that the next one is larger.
func (g *ground) cleanUp() string {
	switch g.deployment.kind() {
	case "redis", "redigo", "redlock":
	default:
		return ""
	}
	err := g.deleteKeys()
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%d locks under the prefix %q have left their last token, about 100 bytes each, for a day: they could not be deleted: %v",
		len(g.names), g.prefix, err)
}

// deleteKeys deletes by name: to look for keys by pattern is no work for a server in use.
func (g *ground) deleteKeys() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // also when the check was interrupted
	defer cancel()
	servers, err := g.deployment.redisServers()
	if err != nil {
		return err
	}
	var errs []error
	for _, rdb := range servers {
		for names := range slices.Chunk(slices.Sorted(maps.Keys(g.names)), 200) {
			_, err := rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
				for _, name := range names {
					key := redisscript.Key(prefixEscape.Replace(g.prefix) + ":" + name)
					p.Del(ctx, key, key+":queue")
				}
				return nil
			})
			if err != nil {
				errs = append(errs, err)
				break
			}
		}
		errs = append(errs, rdb.Close())
	}
	return errors.Join(errs...)
}

// redisServers are clients of the servers on which the locks are. The URL has been opened before: what is not understood here
// is an error all the same, and not passed over.
func (d deployment) redisServers() ([]goredis.UniversalClient, error) {
	u := &locker.URL{Scheme: d.scheme, Hosts: d.hosts}
	var err error
	if u.Query, err = url.ParseQuery(strings.Join(d.params, "&")); err != nil {
		return nil, err
	}
	o := goredis.UniversalOptions{
		ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	name, password, _ := strings.Cut(strings.TrimSuffix(d.user, "@"), ":")
	o.Username, _ = url.PathUnescape(name)
	o.Password, _ = url.PathUnescape(password)
	if o.DB, err = strconv.Atoi("0" + strings.TrimPrefix(d.path, "/")); err != nil {
		return nil, err
	}
	o.MasterName = u.Query.Get("master_name")
	o.SentinelUsername, o.SentinelPassword = u.Query.Get("sentinel_username"), u.Query.Get("sentinel_password")
	o.IsClusterMode, _ = strconv.ParseBool(u.Query.Get("cluster"))
	if d.scheme == "redlock" {
		u.Scheme = cmp.Or(u.Query.Get("driver"), "redis")
	}
	if o.TLSConfig, err = adapterurl.TLS(u, plain(u.Scheme), ""); err != nil {
		return nil, err
	}
	port := redisurl.Port
	if o.MasterName != "" {
		port = redisurl.SentinelPort
	}
	o.Addrs = adapterurl.Addrs(u, port)
	if socket := u.Query.Get("socket"); socket != "" {
		o.Addrs = []string{socket}
	}
	if d.scheme != "redlock" {
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
