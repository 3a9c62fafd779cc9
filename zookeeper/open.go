package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/adapterurl"
)

func init() { locker.Register("zookeeper", open) }

const port = "2181"

// open reads a URL as the package's documentation has it. Connections are made when sessions are needed.
func open(ctx context.Context, u *locker.URL) (locker.Driver, error) {
	d := newDriver()
	d.opening = ctx
	d.servers = adapterurl.Addrs(u, port)
	var err error
	if u.Path != "" && u.Path != "/" {
		if d.chroot, err = checkRoot(u.Path); err != nil {
			return nil, err
		}
	}
	if err := adapterurl.Duration(u, "tick", &d.tick); err != nil {
		return nil, err
	}
	if err := adapterurl.Duration(u, "dial_timeout", &d.dialTimeout); err != nil {
		return nil, err
	}
	d.user, d.password = adapterurl.User(u)
	if (d.user == "") != (d.password == "") {
		return nil, errors.New("a user goes with a password")
	}
	acl, ok := u.Take("acl")
	if !ok && d.user != "" {
		acl = "creator"
	}
	switch {
	case acl == "creator" && d.user == "":
		return nil, errors.New("parameter acl=creator needs a user")
	case acl == "creator":
		d.acl = zk.AuthACL(zk.PermAll)
	case ok && acl != "world":
		return nil, fmt.Errorf("parameter acl=%q is neither world nor creator", acl)
	}
	return d, nil
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
