package wire

import (
	"encoding/binary"
	"net"
	"strconv"
	"sync"
	"time"
)

// DialZooKeeper is a dialer for a client of ZooKeeper. The packets that it sends are counted by the names of
// their operations, but for the first of each connection, pings and passwords.
func (t *Tally) DialZooKeeper(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	c := &zooKeeperConn{Conn: &meteredConn{conn, &t.traffic}, tally: t}
	c.requests.frame, c.replies.frame = c.request, c.reply
	return c, nil
}

type zooKeeperConn struct {
	net.Conn
	tally *Tally

	mu                sync.Mutex
	requests, replies frameParser
	underWay          int
}

// Write counts before it writes, so that no answer comes first.
func (c *zooKeeperConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.requests.feed(b)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *zooKeeperConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replies.feed(b[:n])
	return n, err
}

// ZooKeeper gives requests numbers above zero, and to what is no request others: to pings and watches' events,
// for two.
func (c *zooKeeperConn) request(xid, operation int32) {
	if xid <= 0 {
		return
	}
	name, known := zooKeeperOperations[operation]
	if !known {
		name = []byte(strconv.Itoa(int(operation)))
	}
	c.tally.add(name)
	if c.underWay++; c.underWay == 1 {
		c.tally.traffic.roundTrips.Add(1)
	}
}

func (c *zooKeeperConn) reply(xid, _ int32) {
	if xid > 0 {
		c.underWay--
	}
}

// zooKeeperOperations are named as in org.apache.zookeeper.ZooDefs.OpCode.
var zooKeeperOperations = map[int32][]byte{
	-11: []byte("closeSession"), 1: []byte("create"), 2: []byte("delete"), 3: []byte("exists"),
	4: []byte("getData"), 5: []byte("setData"), 6: []byte("getACL"), 7: []byte("setACL"),
	8: []byte("getChildren"), 9: []byte("sync"), 12: []byte("getChildren2"), 14: []byte("multi"),
	15: []byte("create2"), 18: []byte("removeWatches"), 19: []byte("createContainer"), 21: []byte("createTTL"),
}

// frameParser finds frames in a stream, each with its length before it in four bytes, and hands over the first
// two numbers of four bytes in each but the first frame, which opens a session. It takes the stream in pieces
// of any size.
type frameParser struct {
	frame func(first, second int32)

	head   [12]byte // length and both numbers, as far as they have come
	have   int
	skip   int // bytes to come that say nothing here
	opened bool
}

func (p *frameParser) feed(b []byte) {
	for len(b) > 0 {
		if p.skip > 0 {
			n := min(p.skip, len(b))
			p.skip -= n
			b = b[n:]
			continue
		}
		n := copy(p.head[p.have:], b)
		p.have += n
		b = b[n:]
		if p.have < len(p.head) {
			return
		}
		p.have = 0
		p.skip = int(binary.BigEndian.Uint32(p.head[:])) - (len(p.head) - 4)
		if p.opened {
			p.frame(int32(binary.BigEndian.Uint32(p.head[4:])), int32(binary.BigEndian.Uint32(p.head[8:])))
		}
		p.opened = true
	}
}
