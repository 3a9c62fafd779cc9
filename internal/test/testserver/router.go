package testserver

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
)

// RedisRouter is a proxy in front of several Redis servers, as twemproxy and Envoy are: the first key of a script says which of
// them runs it. It knows EVAL, EVALSHA and PING, and refuses all other commands, subscriptions too.
type RedisRouter struct {
	gate    *gate
	strict  bool
	servers []*RedisServer
}

// NewRedisRouter starts a router to servers, which ends with the test. One that is strict looks at the other keys too, and
// refuses a script if they are another server's.
func NewRedisRouter(t testing.TB, strict bool, servers ...*RedisServer) *RedisRouter {
	t.Helper()
	r := &RedisRouter{strict: strict, servers: servers}
	r.gate = openGate(t, "router", net.Listen, func(g *gate, client net.Conn) {
		s := routerSession{router: r, gate: g, in: bufio.NewReader(client), out: bufio.NewWriter(client)}
		s.serve()
		for _, conn := range s.dialled {
			g.drop(conn)
		}
	})
	return r
}

// Addr is the host:port for clients.
func (r *RedisRouter) Addr() string { return r.gate.addr }

// serverOf returns the server of a key, by its hash tag.
func (r *RedisRouter) serverOf(key string) *RedisServer {
	_, rest, _ := strings.Cut(key, "{")
	if tag, _, ok := strings.Cut(rest, "}"); ok {
		key = tag
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return r.servers[h.Sum64()%uint64(len(r.servers))]
}

// route returns the server of a script with these keys, or nil if it is refused.
func (r *RedisRouter) route(keys []any) *RedisServer {
	server := r.serverOf(keys[0].(string))
	for _, key := range keys {
		if r.strict && r.serverOf(key.(string)) != server {
			return nil
		}
	}
	return server
}

// routerSession is one client's connection, and those to servers for it.
type routerSession struct {
	router  *RedisRouter
	gate    *gate
	in      *bufio.Reader
	out     *bufio.Writer
	servers map[*RedisServer]*bufio.ReadWriter
	dialled []net.Conn
}

// serve makes commands one by one, until a connection breaks.
func (s *routerSession) serve() {
	for {
		command, err := readReply(s.in)
		if err != nil {
			return
		}
		words, _ := command.([]any)
		if s.answer(words) != nil || s.in.Buffered() == 0 && s.out.Flush() != nil {
			return
		}
	}
}

// answer writes the reply to a command.
func (s *routerSession) answer(words []any) error {
	name := ""
	if len(words) > 0 {
		name, _ = words[0].(string)
	}
	switch strings.ToUpper(name) {
	case "EVAL", "EVALSHA":
		if len(words) < 3 {
			break
		}
		if n, err := strconv.Atoi(words[2].(string)); err != nil || n < 1 || len(words) < 3+n {
			break
		} else if server := s.router.route(words[3 : 3+n]); server != nil {
			return s.forward(server, words)
		}
		_, err := s.out.WriteString("-ERR backends of the keys differ\r\n") // a vendor's own words
		return err
	case "PING":
		_, err := s.out.WriteString("+PONG\r\n")
		return err
	}
	_, err := fmt.Fprintf(s.out, "-ERR unsupported command '%s'\r\n", name)
	return err
}

func (s *routerSession) forward(to *RedisServer, words []any) error {
	server, err := s.server(to)
	if err != nil {
		return err
	}
	fmt.Fprintf(server, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(server, "$%d\r\n%s\r\n", len(word.(string)), word)
	}
	if err := server.Flush(); err != nil {
		return err
	}
	return copyReply(s.out, server.Reader)
}

// server returns a connection of this session's own.
func (s *routerSession) server(to *RedisServer) (*bufio.ReadWriter, error) {
	if server := s.servers[to]; server != nil {
		return server, nil
	}
	conn, err := s.gate.dial(to.Addr())
	if err != nil {
		return nil, err
	}
	s.dialled = append(s.dialled, conn)
	if s.servers == nil {
		s.servers = map[*RedisServer]*bufio.ReadWriter{}
	}
	s.servers[to] = bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	return s.servers[to], nil
}

// copyReply copies one reply in version 2 of Redis's protocol.
func copyReply(to io.Writer, from *bufio.Reader) error {
	line, err := from.ReadString('\n')
	if err != nil {
		return err
	}
	if _, err := io.WriteString(to, line); err != nil || line[0] != '$' && line[0] != '*' {
		return err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(line[1:]), 10, 64)
	if err != nil || n < 0 { // no value
		return err
	}
	if line[0] == '$' {
		_, err = io.CopyN(to, from, n+2)
		return err
	}
	for range n {
		if err := copyReply(to, from); err != nil {
			return err
		}
	}
	return nil
}
