// Package wire counts what clients write to their connections: commands of Redis, calls by gRPC, and packets
// of ZooKeeper.
package wire

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
)

// Tally counts, by name, the commands that clients write to their connections. The server cannot
// tell: its own counts contain those that scripts run.
type Tally struct {
	mu     sync.Mutex
	counts map[string]*int64

	traffic traffic
}

// NewTally returns one that has counted nothing.
func NewTally() *Tally { return &Tally{counts: make(map[string]*int64)} }

func (t *Tally) add(name []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.counts[string(name)]
	if n == nil {
		n = new(int64)
		t.counts[string(name)] = n
	}
	*n++
}

// Snapshot returns the counts so far, names in lower case.
func (t *Tally) Snapshot() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make(map[string]int64, len(t.counts))
	for name, n := range t.counts {
		counts[strings.ToLower(name)] += *n
	}
	return counts
}

// Dial returns a connection whose commands are counted.
func (t *Tally) Dial(ctx context.Context, d *net.Dialer, network, addr string) (net.Conn, error) {
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
