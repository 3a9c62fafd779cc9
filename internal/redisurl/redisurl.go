// Package redisurl reads what the URLs of the Redis adapters have in common, beside what package
// adapterurl does. Each function takes off
// the query what it reads.
package redisurl

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/adapterurl"
	"github.com/go-locker/locker/internal/redisscript"
)

// The ports of a URL that does not name one.
const (
	Port         = "6379"
	SentinelPort = "26379"
)

// Addr is Addrs for a URL of one server.
func Addr(u *locker.URL) (string, error) {
	if len(u.Hosts) > 1 {
		return "", fmt.Errorf("%s:// takes one host, and the URL has %d", u.Scheme, len(u.Hosts))
	}
	return adapterurl.Addrs(u, Port)[0], nil
}

// Database returns the database that the path names, 0 if it names none.
func Database(u *locker.URL) (int, error) {
	db := strings.TrimPrefix(u.Path, "/")
	if db == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(db, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("path %q is not a database number, as in %s://localhost/0", u.Path, u.Scheme)
	}
	return int(n), nil
}

// Replicas reads replicas and replica_timeout, which is 1s if only the former is there. N is 0 if
// neither is.
func Replicas(u *locker.URL) (redisscript.Replicas, error) {
	var r redisscript.Replicas
	if err := errors.Join(adapterurl.Number(u, "replicas", &r.N), adapterurl.Duration(u, "replica_timeout", &r.Timeout)); err != nil {
		return r, err
	}
	switch {
	case r.N == 0 && r.Timeout > 0:
		return r, errors.New("parameter replica_timeout goes with replicas")
	case r.N > 0 && r.Timeout == 0:
		r.Timeout = time.Second
	case r.Timeout%time.Millisecond != 0:
		return r, fmt.Errorf("parameter replica_timeout=%v: Redis takes whole milliseconds", r.Timeout)
	}
	return r, nil
}
