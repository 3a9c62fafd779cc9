package testserver

import (
	"bufio"
	"crypto/tls"
	"errors"
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

// do sends a command as operator, on a connection of its own, which takes a second at most. Its
// reply is a string, an int64, nil, or an []any of these; an error reply is a redisError.
func (s *RedisServer) do(args ...string) (any, error) {
	conn, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
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

// ask sends an inline command, without authentication, on a connection of its own, which takes a
// second at most.
func (s *RedisServer) ask(command string) (string, error) {
	conn, err := s.dial()
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return redisCommand(conn, command)
}

func (s *RedisServer) dial() (net.Conn, error) {
	deadline := time.Now().Add(3 * time.Second)
	conn, err := (&net.Dialer{Deadline: deadline}).Dial("tcp4", s.Addr())
	if err != nil {
		return nil, err
	}
	if s.tlsConfig != nil {
		conn = tls.Client(conn, s.tlsConfig)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// redisCommand sends an inline command and returns a string, or another reply as it looks on the
// wire, an error with its leading "-". There must be no other reply under way on conn.
func redisCommand(conn net.Conn, command string) (string, error) {
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return "", err
	}
	reply, err := readReply(bufio.NewReader(conn))
	if refusal, ok := errors.AsType[redisError](err); ok {
		return "-" + string(refusal), nil
	}
	switch reply := reply.(type) {
	case nil:
		return "", err
	case int64:
		return fmt.Sprint(":", reply), err
	default:
		return fmt.Sprint(reply), err
	}
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
