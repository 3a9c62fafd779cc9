package zookeeper

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// DriverOption is an option of [NewDriver]: what concerns ZooKeeper alone.
type DriverOption func(*Driver) error

// Tick says what tickTime the servers are configured with; then a TTL of less than four times that is [driver.ErrUnsupported].
// The default is a quarter of the TTL, and at most 30s, which is safe for servers with any tickTime up to a minute. A shorter one that is
// true shortens the waits for a tick. Less than it is in truth makes the locks unsafe. A d of 0 or less is an error.
func Tick(d time.Duration) DriverOption {
	return func(driver *Driver) error {
		if d <= 0 {
			return fmt.Errorf("tick %v: must be above 0", d)
		}
		driver.tick = d
		return nil
	}
}

// Root has all nodes made below path, which begins with a slash; one at its end changes nothing. The default is "/", the root
// of what the connection sees. It is made, with the [ACL], if it is missing when a lock is taken. A path with a name in it
// that is empty, or that ZooKeeper does not allow, is an error.
func Root(path string) DriverOption {
	return func(driver *Driver) (err error) {
		driver.chroot, err = checkRoot(path)
		return err
	}
}

// ACL is what the nodes that are made allow, those of the locks and those above them that are missing. By default that is
// everything, to everybody. An empty one is an error.
func ACL(acl []zk.ACL) DriverOption {
	return func(driver *Driver) error {
		if len(acl) == 0 {
			return errors.New("an empty ACL")
		}
		driver.acl = acl
		return nil
	}
}
