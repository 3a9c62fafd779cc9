package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"path"
	"slices"
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

// countedConn counts the requests in what is written. It embeds the TCP connection for its
// SyscallConn, with which clients check on it.
type countedConn struct {
	*net.TCPConn

	tally *tally
	// next returns the name and the size of the request that b begins with: no name if it does not
	// count, and no size if there is more to come of it.
	next func(b []byte) (name []byte, size int)

	mu   sync.Mutex // guards:
	rest []byte     // an incomplete request, until its rest is written
}

func (t *tally) dial(ctx context.Context, network, addr string, next func([]byte) ([]byte, int)) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countedConn{TCPConn: conn.(*net.TCPConn), tally: t, next: next}, nil
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.rest = append(c.rest, b...)
	done := 0
	for name, size := c.next(c.rest); size > 0; name, size = c.next(c.rest[done:]) {
		if name != nil {
			c.tally.add(name)
		}
		done += size
	}
	c.rest = slices.Delete(c.rest, 0, done)
	c.mu.Unlock()
	return c.TCPConn.Write(b)
}

// dialRedis returns a connection whose commands are counted.
func (t *tally) dialRedis(ctx context.Context, network, addr string) (net.Conn, error) {
	return t.dial(ctx, network, addr, redisRequest)
}

// redisRequest finds an array of bulk strings: "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".
func redisRequest(b []byte) (name []byte, size int) {
	header := func() (n int) {
		line, _, whole := bytes.Cut(b[size:], []byte("\r\n"))
		if !whole {
			return -1
		}
		n, _ = strconv.Atoi(string(line[1:]))
		size += len(line) + len("\r\n")
		return n
	}
	for i := range header() {
		length := header()
		end := size + length + len("\r\n")
		if length < 0 || end > len(b) {
			return nil, 0
		}
		if i == 0 {
			name = b[size : size+length]
		}
		size = end
	}
	return name, size
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

// dialZooKeeper returns a connection whose packets are counted by their operations, but for the
// first, which opens a session, pings and passwords.
func (t *tally) dialZooKeeper(network, addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.dial(ctx, network, addr, zooKeeperRequest)
}

// zooKeeperRequest finds a frame: four bytes each of its length, its number, which is above zero
// where it counts, and its operation.
func zooKeeperRequest(b []byte) (operation []byte, size int) {
	if len(b) < 12 {
		return nil, 0
	}
	if size = 4 + int(binary.BigEndian.Uint32(b)); size > len(b) {
		return nil, 0
	}
	if int32(binary.BigEndian.Uint32(b[4:])) > 0 {
		operation = b[8:12]
	}
	return operation, size
}
