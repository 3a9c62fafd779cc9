// Package redisurl reads what the URLs of the Redis adapters have in common, beside what package
// adapter reads. Each function takes off the query what it reads.
package redisurl

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/redisscript"
)

// The ports of a URL that does not name one.
const (
	Port         = "6379"
	SentinelPort = "26379"
)

// Socket returns the path of the Unix socket that the URL names in place of a host; empty if it names none. The scheme
// is to be the one without TLS.
func Socket(u *driver.URL, plain string) (string, error) {
	path, ok := u.Take("socket")
	switch {
	case !ok:
		return "", nil
	case !strings.HasPrefix(path, "/"):
		return "", fmt.Errorf("parameter socket=%q is not the absolute path of a Unix socket", path)
	case len(u.Hosts) > 0:
		return "", fmt.Errorf("parameter socket takes the place of a host, as in %s:///0?socket=%s", u.Scheme, path)
	case u.Scheme != plain:
		return "", fmt.Errorf("parameter socket: there is no TLS on a Unix socket: use %s://", plain)
	}
	return path, nil
}

// ClientName returns client_name, by which CLIENT LIST of the server lists the connections; empty if there is none.
func ClientName(u *driver.URL) (string, error) {
	name, ok := u.Take("client_name")
	if ok && name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("parameter client_name=%q: Redis takes printable ASCII without spaces", name)
	}
	return name, nil
}

// Sentinel is who knows the server.
type Sentinel struct {
	Master             string // empty: nobody is asked
	Username, Password string
}

// Sentinels reads master_name, sentinel_username and sentinel_password.
func Sentinels(u *driver.URL) (s Sentinel, err error) {
	master, hasMaster := u.Take("master_name")
	user, hasUser := u.Take("sentinel_username")
	password, hasPassword := u.Take("sentinel_password")
	switch {
	case hasMaster && master == "":
		return s, errors.New("parameter master_name is empty: it is the name by which the sentinels know the primary")
	case !hasMaster && hasUser:
		return s, errors.New("parameter sentinel_username goes with master_name")
	case !hasMaster && hasPassword:
		return s, errors.New("parameter sentinel_password goes with master_name")
	case hasPassword && password == "":
		return s, errors.New("parameter sentinel_password is empty")
	case hasUser && (user == "" || !hasPassword):
		return s, errors.New("parameter sentinel_username goes with sentinel_password, and is not empty")
	}
	return Sentinel{master, user, password}, nil
}

// Database returns the database that the path names, 0 if it names none.
func Database(u *driver.URL) (int, error) {
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
func Replicas(u *driver.URL) (redisscript.Replicas, error) {
	var r redisscript.Replicas
	if err := errors.Join(adapter.Number(u, "replicas", &r.N), adapter.Duration(u, "replica_timeout", &r.Timeout)); err != nil {
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
