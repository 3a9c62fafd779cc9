package zookeeper

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-locker/locker/driver"
)

// Before version 3.6, a server that starts again from a snapshot that was written while transactions
// came in may set a node's pzxid back (ZOOKEEPER-3249, ZOOKEEPER-3145), of which we make tokens.
const oldestMajor, oldestMinor = 3, 6

// checkVersion returns driver.ErrUnsupported if the server is too old. One that is not is asked once.
func (d *Driver) checkVersion(ctx context.Context, n *network, address string) error {
	if d.recent.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(pace(n.ttl)/16, versionPatience))
	defer cancel()
	version := n.version(ctx, address)
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return nil // it does not tell
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		return fmt.Errorf("%w: %s is ZooKeeper %s, on which tokens may fall when it starts again: use version %d.%d or later",
			driver.ErrUnsupported, address, version, oldestMajor, oldestMinor)
	}
	d.recent.Store(true)
	return nil
}

// versionPatience is how long a session waits at most for its server's version. Some never answer.
const versionPatience = 500 * time.Millisecond

// version asks for a server's version by its word srvr, on a connection of its own: the one word that
// servers answer unless they are told otherwise. The result is empty if there is no such answer.
func (n *network) version(ctx context.Context, address string) string {
	conn, err := n.connect(ctx, address)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	forget := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer forget()
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return ""
	}
	const firstLine = 256
	line, err := bufio.NewReader(io.LimitReader(conn, firstLine)).ReadString('\n')
	version, ok := strings.CutPrefix(line, "Zookeeper version: ")
	if !ok || err != nil { // half a line may have another version
		return ""
	}
	version, _, _ = strings.Cut(version, "-") // behind it stand that of the source, and when it was built
	return version
}
