package main

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
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

	mu   sync.Mutex // guards:
	rest []byte     // an incomplete request, until its rest is written
}

// dialRedis returns a connection whose commands are counted.
func (t *tally) dialRedis(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countedConn{TCPConn: conn.(*net.TCPConn), tally: t}, nil
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.rest = append(c.rest, b...)
	done := 0
	for name, size := redisRequest(c.rest); size > 0; name, size = redisRequest(c.rest[done:]) {
		c.tally.add(name)
		done += size
	}
	c.rest = slices.Delete(c.rest, 0, done)
	c.mu.Unlock()
	return c.TCPConn.Write(b)
}

// redisRequest finds an array of bulk strings: "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n". It returns the command
// and its size, or no size if there is more to come of it.
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
