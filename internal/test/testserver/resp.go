package testserver

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// operator is the user that every Redis server of this package knows beside those of its test. With
// it the package gets its answers, replicas their data and sentinels their way in, whatever other
// clients may not. Its password is its name.
const operator = "testserver"

// redisError is an error reply, without the leading "-".
type redisError string

func (e redisError) Error() string { return string(e) }

// do sends a command as operator, on a connection of its own, which takes three seconds at most.
// Its reply is a string, an int64, nil, or an []any of these; an error reply is a redisError.
func (s *RedisServer) do(args ...string) (any, error) {
	conn, err := dial(s.port, 3*time.Second)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if s.Certificates != nil {
		conn = tls.Client(conn, s.config)
	}
	var request strings.Builder
	for _, command := range [][]string{{"AUTH", operator, operator}, args} {
		fmt.Fprintf(&request, "*%d\r\n", len(command))
		for _, arg := range command {
			fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
		}
	}
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	if _, err := readReply(r); err != nil {
		return nil, err
	}
	return readReply(r)
}

// doText is do for a command whose reply is a string.
func (s *RedisServer) doText(args ...string) (string, error) {
	reply, err := s.do(args...)
	if err != nil {
		return "", err
	}
	text, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("%v: got %v, want a string", args, reply)
	}
	return text, nil
}

// must is do in a test that cannot go on after an error.
func (s *RedisServer) must(args ...string) any {
	s.t.Helper()
	reply, err := s.do(args...)
	if err != nil {
		s.t.Fatalf("testserver: %s at %s: %s: %v", s.name, s.Addr(), strings.Join(args, " "), err)
	}
	return reply
}

// dial connects to a server, for no longer than limit.
func dial(port int, limit time.Duration) (net.Conn, error) {
	deadline := time.Now().Add(limit)
	conn, err := (&net.Dialer{Deadline: deadline}).Dial("tcp4", loopback(port))
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(deadline)
}

// readReply reads one reply in version 2 of Redis's protocol.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, redisError(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("malformed reply %q", line)
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0: // no value
		return nil, nil
	case kind == '$':
		bulk := make([]byte, n+2)
		_, err := io.ReadFull(r, bulk)
		return string(bulk[:n]), err
	case kind == '*':
		items := make([]any, n)
		for i := range items {
			if items[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return items, nil
	}
	return nil, fmt.Errorf("malformed reply %q", line)
}
