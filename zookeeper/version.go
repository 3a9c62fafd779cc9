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

// Before version 3.6, a server that starts again from a snapshot that was written while
// transactions came in may set a node's pzxid back (ZOOKEEPER-3249, ZOOKEEPER-3145), of which we
// make tokens.
const oldestMajor, oldestMinor = 3, 6

// checkVersion returns driver.ErrUnsupported if the server is too old. It asks by the word srvr, on
// a connection of its own: the one word that servers answer unless they are told otherwise. Some
// never answer. One that is not too old is asked once.
func (n *network) checkVersion(ctx context.Context, address string) error {
	if n.driver.recent.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(pace(n.ttl)/16, 500*time.Millisecond))
	defer cancel()
	conn, err := n.connect(ctx, address)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	forget := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer forget()
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return nil
	}
	const firstLine = 256
	line, err := bufio.NewReader(io.LimitReader(conn, firstLine)).ReadString('\n')
	if err != nil {
		return nil // half a line may have another version
	}
	var major, minor int
	if _, err := fmt.Sscanf(line, "Zookeeper version: %d.%d", &major, &minor); err != nil {
		return nil // it does not tell
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		version, _, _ := strings.Cut(strings.TrimPrefix(line, "Zookeeper version: "), "-")
		return fmt.Errorf("%w: %s is ZooKeeper %s, on which tokens may fall when it starts again: use version %d.%d or later",
			driver.ErrUnsupported, address, version, oldestMajor, oldestMinor)
	}
	n.driver.recent.Store(true)
	return nil
}
