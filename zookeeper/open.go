package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
)

const (
	plainScheme = "zookeeper" // the scheme without TLS
	port        = "2181"
	securePort  = "2281"
)

func init() {
	driver.Register(plainScheme, open)
	driver.Register(plainScheme+"s", open)
}

// open reads a URL as the package's documentation has it. Connections are made when sessions are needed.
func open(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	d := newDriver()
	d.opening = ctx
	d.servers = adapter.Addrs(u, port)
	if u.Scheme != plainScheme {
		d.servers = adapter.Addrs(u, securePort)
	}
	var badPath, badTLS error
	d.chroot, badPath = checkRoot(cmp.Or(u.Path, "/"))
	d.tls, badTLS = adapter.TLS(ctx, u, plainScheme, "")
	if err := errors.Join(
		badPath, badTLS, adapter.Duration(u, "tick", &d.tick), adapter.Duration(u, "dial_timeout", &d.dialTimeout), d.authenticate(u),
	); err != nil {
		return nil, err
	}
	return d, nil
}

// authenticate sets who we are, and who may do what with our nodes.
func (d *Driver) authenticate(u *driver.URL) error {
	name, password, err := adapter.User(u, false)
	if err != nil {
		return err
	}
	if strings.Contains(name, ":") { // the server takes what follows for the password
		return errors.New("a user of the scheme digest has no colon in its name")
	}
	acl, given := u.Take("acl")
	if name != "" {
		d.user = &user{name, password}
	}
	switch {
	case !given && d.user == nil, acl == "world":
		return nil
	case given && acl != "creator":
		return fmt.Errorf("parameter acl=%q is neither world nor creator", acl)
	case d.user == nil:
		return errors.New("parameter acl=creator needs a user")
	default:
		d.acl = zk.AuthACL(zk.PermAll)
		return nil
	}
}

// checkRoot returns the path without a slash at its end.
func checkRoot(path string) (string, error) {
	if path == "/" {
		return "", nil
	}
	path = strings.TrimSuffix(path, "/")
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return "", fmt.Errorf("path %q: must be / and names with slashes between them", path)
	}
	for part := range strings.SplitSeq(rest, "/") {
		plain := strings.ReplaceAll(part, "%", "-") // which is allowed, and escaped in names alone
		if part == "" || escape(plain) != plain && plain != "zookeeper" {
			return "", fmt.Errorf("path %q: ZooKeeper does not allow the name %q in it", path, part)
		}
	}
	return path, nil
}
