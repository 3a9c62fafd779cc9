package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
)

// DriverOption is an option of [NewDriver]: what concerns ZooKeeper alone.
type DriverOption func(*backend) error

// user is one of the scheme digest. It is behind a pointer, which a Driver that is printed does not
// follow.
type user struct{ name, password string }

// Auth authenticates each connection, by the scheme digest. Then nobody else may use the nodes that
// the Driver makes, unless an [ACL] that is given after Auth allows it.
func Auth(name, password string) DriverOption {
	return func(d *backend) error {
		switch {
		case name == "" || password == "":
			return errors.New("a user goes with a password")
		case strings.Contains(name, ":"): // the server takes what follows for the password
			return errors.New("a user of the scheme digest has no colon in its name")
		}
		d.user, d.acl = &user{name, password}, zk.AuthACL(zk.PermAll)
		return nil
	}
}

// TLS encrypts connections. The servers are then named with their secureClientPort.
func TLS(config *tls.Config) DriverOption {
	return func(d *backend) error {
		if config != nil {
			d.tls = func(context.Context) *tls.Config { return config.Clone() }
		}
		return nil
	}
}

// Dialer makes connections by dial, for example through a proxy. TLS is added to them.
func Dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) DriverOption {
	return func(d *backend) error {
		d.dial = dial
		return nil
	}
}

// Root makes all nodes below path, which begins with a slash; a slash at its end changes nothing.
// The default is "/". The node of path is made, with the [ACL], if it is missing when a lock is
// taken. A path with a name in it that is empty, or that ZooKeeper does not allow, is an error.
func Root(path string) DriverOption {
	return func(d *backend) (err error) {
		d.chroot, err = checkRoot(path)
		return err
	}
}

// ACL sets the access rights to the nodes that the Driver makes: those of the locks, and those
// above them if they are missing. By default everybody may do everything. With [Auth], only its
// user may. Give ACL after Auth. An empty ACL is an error.
func ACL(acl []zk.ACL) DriverOption {
	return func(d *backend) error {
		if len(acl) == 0 {
			return errors.New("an empty ACL")
		}
		d.acl = acl
		return nil
	}
}

// Tick says what tickTime the servers are configured with. Then a TTL of less than four ticks is
// [driver.ErrUnsupported]. The default is a quarter of the TTL, and at most 30s. It is safe if
// tickTime is at most a minute, and minSessionTimeout at least two ticks: see the documentation of
// the package. If the real tick is shorter than the default, give it: then an Extend soon after the
// first Lock is faster. If you give a tick that is shorter than the servers' tickTime, the locks
// are unsafe. A d of 0 or less is an error.
func Tick(d time.Duration) DriverOption {
	return func(driver *backend) error { return setPositive(&driver.tick, "tick", d) }
}

// DialTimeout sets how long it may take to connect to one server. It is also how long a Client
// without a TTL waits to learn the TTL that the servers grant. The default is 5s. A d of 0 or less
// is an error.
func DialTimeout(d time.Duration) DriverOption {
	return func(driver *backend) error { return setPositive(&driver.dialTimeout, "dial time-out", d) }
}

func setPositive(to *time.Duration, what string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s %v: must be above 0", what, d)
	}
	*to = d
	return nil
}

const (
	plainScheme = "zookeeper" // the scheme without TLS
	port        = "2181"
	securePort  = "2281"
)

func init() {
	driver.Register(plainScheme, open)
	driver.Register(plainScheme+"s", open)
}

// open reads a URL as the package's documentation has it.
func open(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	defaultPort := port
	if u.Scheme != plainScheme {
		defaultPort = securePort
	}
	d := newDriver(adapter.Addrs(u, defaultPort))
	d.opening = ctx
	config, badTLS := adapter.TLS(ctx, u, plainScheme, "")
	if config != nil {
		d.tls = config.Current
	}
	name, password, badUser := adapter.User(u, false)
	if name != "" {
		badUser = Auth(name, password)(d)
	}
	if err := errors.Join(
		badTLS, badUser, Root(cmp.Or(u.Path, "/"))(d),
		adapter.Duration(u, "tick", &d.tick), adapter.Duration(u, "dial_timeout", &d.dialTimeout),
	); err != nil {
		return nil, err
	}
	acl, given := u.Take("acl")
	switch {
	case given && acl != "world" && acl != "creator":
		return nil, fmt.Errorf("parameter acl=%q is neither world nor creator", acl)
	case acl == "creator" && d.user == nil:
		return nil, errors.New("parameter acl=creator needs a user")
	case acl == "world":
		d.acl = zk.WorldACL(zk.PermAll)
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
