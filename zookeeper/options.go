package zookeeper

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// DriverOption is an option of [NewDriver]: what concerns ZooKeeper alone.
type DriverOption func(*Driver) error

// Tick says what tickTime the servers are configured with; then TTLs are at least four times that. The default is 2s, or a
// quarter of the TTL if that is less. Less than it is in truth makes the locks unsafe.
func Tick(d time.Duration) DriverOption {
	return func(driver *Driver) error {
		if d <= 0 {
			return fmt.Errorf("tick %v: must be above 0", d)
		}
		driver.tick = d
		return nil
	}
}

// Root has all nodes made below path, which begins with a slash. It is made if it is missing.
func Root(path string) DriverOption {
	return func(driver *Driver) (err error) {
		driver.chroot, err = checkRoot(path)
		return err
	}
}

// ACL is what the nodes that are made allow. By default that is everything, to everybody.
func ACL(acl []zk.ACL) DriverOption {
	return func(driver *Driver) error {
		if len(acl) == 0 {
			return errors.New("an empty ACL")
		}
		driver.acl = acl
		return nil
	}
}
