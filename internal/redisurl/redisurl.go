// Package redisurl reads the URLs of the Redis adapters. Each function takes off the query what it
// reads.
package redisurl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/redisscript/script"
)

// Target is what a URL of an adapter says. A number or a duration of 0 is the adapter's default.
type Target struct {
	// Addrs are those of one server, of sentinels if Master is not empty, or of the nodes of a
	// Cluster. A path is a Unix socket.
	Addrs []string
	Sentinel
	Cluster bool

	DB                         int
	User, Password, ClientName string
	Replicas                   script.Replicas

	PoolSize                               int
	DialTimeout, ReadTimeout, WriteTimeout time.Duration

	tls *adapter.TLSConfig
}

// Read reads a URL of which plain is the scheme without TLS. The parameter cluster is unknown
// unless clusters is set.
func Read(ctx context.Context, u *driver.URL, plain string, clusters bool) (*Target, error) {
	t := &Target{}
	var socket string
	errs := make([]error, 7, 12)
	t.DB, errs[0] = database(u)
	t.Sentinel, errs[1] = sentinels(u)
	socket, errs[2] = socketOf(u, plain)
	t.User, t.Password, errs[3] = adapter.User(u, true)
	t.ClientName, errs[4] = clientName(u)
	t.Replicas, errs[5] = replicas(u)
	t.tls, errs[6] = adapter.TLS(ctx, u, plain, "") // the name is that of the host which is dialled
	if clusters {
		errs = append(errs, adapter.Bool(u, "cluster", &t.Cluster))
	}
	if err := errors.Join(append(errs,
		adapter.Number(u, "pool_size", &t.PoolSize), adapter.Duration(u, "dial_timeout", &t.DialTimeout),
		adapter.Duration(u, "read_timeout", &t.ReadTimeout), adapter.Duration(u, "write_timeout", &t.WriteTimeout),
	)...); err != nil {
		return nil, err
	}
	port := "6379"
	switch {
	case t.Master != "" && t.Cluster:
		return nil, errors.New("parameters master_name and cluster exclude each other: a Redis Cluster needs no sentinels")
	case socket != "" && (t.Master != "" || t.Cluster):
		return nil, errors.New("parameter socket names one server: it cannot be used with master_name or cluster")
	case t.Master != "":
		port = "26379"
	case t.Cluster && t.DB != 0:
		return nil, fmt.Errorf("path %q with the parameter cluster: a Redis Cluster has no database but 0", u.Path)
	case !t.Cluster && len(u.Hosts) > 1 && clusters:
		return nil, fmt.Errorf("%d hosts need the parameter master_name, if they are sentinels, or cluster=true, if they are nodes of a Redis Cluster", len(u.Hosts))
	case !t.Cluster && len(u.Hosts) > 1:
		return nil, fmt.Errorf("%s:// takes one host, and the URL has %d; if these are sentinels, add the parameter master_name", u.Scheme, len(u.Hosts))
	}
	t.Addrs = adapter.Addrs(u, port)
	if socket != "" {
		t.Addrs = []string{socket}
	}
	return t, nil
}

// DialTLS returns what dials with TLS, within timeout; nil if the scheme is the one without. Unlike
// what the client libraries have, it heeds its context, and reads files anew.
func (t *Target) DialTLS(timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if t.tls == nil {
		return nil
	}
	return adapter.TLSDialer(&net.Dialer{Timeout: timeout}, t.tls)
}

// socketOf returns the path of the Unix socket that the URL names in place of a host; empty if it
// names none. The scheme is to be the one without TLS.
func socketOf(u *driver.URL, plain string) (string, error) {
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

// clientName returns client_name, by which CLIENT LIST of the server lists the connections; empty
// if there is none.
func clientName(u *driver.URL) (string, error) {
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

// sentinels reads master_name, sentinel_username and sentinel_password.
func sentinels(u *driver.URL) (s Sentinel, err error) {
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

// database returns the database that the path names, 0 if it names none.
func database(u *driver.URL) (int, error) {
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

// replicas reads replicas and replica_timeout, which is 1s if only the former is there. N is 0 if
// neither is.
func replicas(u *driver.URL) (script.Replicas, error) {
	var r script.Replicas
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
