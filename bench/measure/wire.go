package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// tally counts, by name, the requests that clients write to their connections. The server cannot
// tell: its own counts contain those that scripts run.
type tally struct {
	mu     sync.Mutex
	counts map[string]*int64
}

func newTally() *tally { return &tally{counts: make(map[string]*int64)} }

func (t *tally) add(name []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.counts[string(name)]
	if n == nil {
		n = new(int64)
		t.counts[string(name)] = n
	}
	*n++
}

// snapshot returns the counts so far, names in lower case.
func (t *tally) snapshot() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make(map[string]int64, len(t.counts))
	for name, n := range t.counts {
		counts[strings.ToLower(name)] += *n
	}
	return counts
}

// dialRedis returns a connection whose commands are counted.
func (t *tally) dialRedis(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(errors.New("not a TCP connection"), conn.Close())
	}
	return &countedConn{TCPConn: tcp, commands: requestParser{command: t.add}}, nil
}

// countedConn embeds the TCP connection for its SyscallConn, with which clients check on it.
type countedConn struct {
	*net.TCPConn

	mu       sync.Mutex
	commands requestParser
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands.feed(b[:n])
	return n, err
}

// requestParser finds the names of commands in a stream of requests, each an array of bulk strings:
// "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n". It takes the stream in pieces of any size.
type requestParser struct {
	command func(name []byte) // must not keep name

	header  []byte // of an array or a bulk string, as far as it has come
	body    int    // bytes to come of the bulk string, with its line end
	naming  bool   // the next or present bulk string is a command's name
	partial []byte // of that name
}

func (p *requestParser) feed(b []byte) {
	for len(b) > 0 {
		if p.body > 0 {
			n := min(p.body, len(b))
			p.bulk(b[:n])
			b = b[n:]
			continue
		}
		line, rest, complete := bytes.Cut(b, []byte("\n"))
		p.header = append(p.header, line...)
		if !complete {
			return
		}
		p.endHeader()
		b = rest
	}
}

func (p *requestParser) endHeader() {
	header := bytes.TrimSuffix(p.header, []byte("\r"))
	p.header = p.header[:0]
	if len(header) == 0 {
		return
	}
	switch header[0] {
	case '*':
		p.naming = true
	case '$':
		if size, err := strconv.Atoi(string(header[1:])); err == nil {
			p.body = size + len("\r\n")
		}
	}
}

func (p *requestParser) bulk(b []byte) {
	p.body -= len(b)
	if !p.naming {
		return
	}
	p.partial = append(p.partial, b...)
	if p.body == 0 {
		p.command(bytes.TrimSuffix(p.partial, []byte("\r\n")))
		p.partial, p.naming = p.partial[:0], false
	}
}

// grpc has a client's messages counted by the name of their method.
func (t *tally) grpc() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithStatsHandler(grpcHandler{t})}
}

type grpcHandler struct{ tally *tally }

type grpcMethod struct{}

func (grpcHandler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, grpcMethod{}, []byte(path.Base(info.FullMethodName)))
}

func (h grpcHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutPayload); ok {
		method, _ := ctx.Value(grpcMethod{}).([]byte)
		h.tally.add(method)
	}
}

func (grpcHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (grpcHandler) HandleConn(context.Context, stats.ConnStats)                       {}

// dialZooKeeper returns a connection whose packets are counted by the numbers of their operations,
// but for the first, which opens a session, pings and passwords.
func (t *tally) dialZooKeeper(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	return &zooKeeperConn{Conn: conn, tally: t}, nil
}

// zooKeeperConn finds frames in what is written, each with its length before it in four bytes; then
// come the request's number, which is above zero but for pings and the like, and its operation.
type zooKeeperConn struct {
	net.Conn

	tally  *tally
	head   [12]byte
	have   int
	skip   int // bytes to come that say nothing here
	opened bool
}

func (c *zooKeeperConn) Write(b []byte) (int, error) {
	c.feed(b)
	return c.Conn.Write(b)
}

func (c *zooKeeperConn) feed(b []byte) {
	for len(b) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(b))
			c.skip -= n
			b = b[n:]
			continue
		}
		n := copy(c.head[c.have:], b)
		c.have += n
		b = b[n:]
		if c.have < len(c.head) {
			return
		}
		c.have = 0
		c.skip = int(binary.BigEndian.Uint32(c.head[:])) - (len(c.head) - 4)
		if number := int32(binary.BigEndian.Uint32(c.head[4:])); c.opened && number > 0 {
			c.tally.add(strconv.AppendInt(nil, int64(int32(binary.BigEndian.Uint32(c.head[8:]))), 10))
		}
		c.opened = true
	}
}
