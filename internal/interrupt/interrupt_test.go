package interrupt_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker/internal/interrupt"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patient = 20 * time.Second
	hello   = "*2\r\n$5\r\nhello\r\n$1\r\n3\r\n"
	ask     = "*2\r\n$7\r\nevalsha\r\n$5\r\nowner\r\n"
	answer  = "+OK\r\n"
)

var await = testwait.Patience(patient).Result

// link is a connection that can be interrupted, and the server's end of it.
type link struct {
	t      *testing.T
	conn   net.Conn
	server net.Conn
}

func newLink(t *testing.T, conns *interrupt.Conns) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	l := &link{t: t}
	l.conn, err = conns.Dialer(new(net.Dialer).DialContext)(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	l.server, err = listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = l.conn.Close(), l.server.Close() })
	return l
}

// exchange is what a client library does for a request that is answered.
func (l *link) exchange(request string) {
	l.t.Helper()
	l.write(request)
	l.serverReads(request)
	l.serverWrites(answer)
	n, err := l.conn.Read(make([]byte, 64))
	require.NoError(l.t, err)
	require.Len(l.t, answer, n)
}

func (l *link) write(request string) {
	l.t.Helper()
	require.NoError(l.t, l.conn.SetWriteDeadline(time.Now().Add(patient)))
	_, err := l.conn.Write([]byte(request))
	require.NoError(l.t, err)
	require.NoError(l.t, l.conn.SetReadDeadline(time.Now().Add(patient)))
}

func (l *link) serverReads(request string) {
	l.t.Helper()
	_, err := io.ReadFull(l.server, make([]byte, len(request)))
	require.NoError(l.t, err)
}

func (l *link) serverWrites(reply string) {
	l.t.Helper()
	_, err := l.server.Write([]byte(reply))
	require.NoError(l.t, err)
}

// reading begins a Read.
func (l *link) reading() <-chan error {
	return testwait.Go(func() error { _, err := l.conn.Read(make([]byte, 64)); return err })
}

// isOpen reports whether the client has left the connection open.
func (l *link) isOpen() bool {
	l.t.Helper()
	require.NoError(l.t, l.server.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := l.server.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func begin(t *testing.T, conns *interrupt.Conns) *interrupt.Watch {
	t.Helper()
	w := &interrupt.Watch{}
	require.True(t, conns.Begin(w, []byte("owner")))
	return w
}

func TestInterrupt_endsTheWaitForTheReplyAlone(t *testing.T) {
	t.Parallel()
	var conns interrupt.Conns
	asks, others := newLink(t, &conns), newLink(t, &conns)
	w := begin(t, &conns)
	asks.exchange(hello)
	asks.write(ask)
	others.exchange(hello)
	others.exchange("*1\r\n$4\r\nping\r\n")
	others.write("*2\r\n$7\r\ncluster\r\n$5\r\nslots\r\n") // which is no set-up any more
	read, other := asks.reading(), others.reading()
	w.Interrupt()
	require.ErrorIs(t, await(t, read), os.ErrDeadlineExceeded)
	others.serverWrites(answer)
	require.NoError(t, await(t, other))
	require.NoError(t, asks.conn.Close())
	late := conns.End()
	require.NotNil(t, late)
	late.Close()
	late.Await(time.Now().Add(patient))
}

// Between Write and Read a client library sets a deadline.
func TestInterrupt_isNotUndoneByADeadline(t *testing.T) {
	t.Parallel()
	var conns interrupt.Conns
	l := newLink(t, &conns)
	w := begin(t, &conns)
	l.write(ask)
	w.Interrupt()
	require.NoError(t, l.conn.SetReadDeadline(time.Now().Add(time.Hour)))
	require.ErrorIs(t, await(t, l.reading()), os.ErrDeadlineExceeded)
	_, err := l.conn.Write([]byte("*1\r\n$4\r\nping\r\n"))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "its reply would be another's")
	late := conns.End()
	late.Close()
	late.Await(time.Now().Add(patient))
}

func TestInterrupt_beforeTheRequestIsWritten(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"on a connection that is set up": ask, "on a new one": hello} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conns interrupt.Conns
			l := newLink(t, &conns)
			w := begin(t, &conns)
			w.Interrupt()
			_, err := l.conn.Write([]byte(first))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			assert.Nil(t, conns.End(), "nothing was asked")
			require.NoError(t, l.conn.Close())
			_, err = l.server.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF, "nothing was written")
		})
	}
}

func TestInterrupt_endsTheSetUp(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{
		"of a connection":       hello,
		"of a Cluster's client": "*2\r\n$7\r\ncluster\r\n$5\r\nslots\r\n",
		"to read from replicas": "*1\r\n$8\r\nreadonly\r\n",
		"of TLS":                "\x16\x03\x01",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conns interrupt.Conns
			l := newLink(t, &conns)
			w := begin(t, &conns)
			l.exchange(hello)
			l.write(last)
			read := l.reading()
			w.Interrupt()
			require.ErrorIs(t, await(t, read), os.ErrDeadlineExceeded)
			require.NoError(t, l.conn.Close())
			assert.False(t, l.isOpen())
			assert.Nil(t, conns.End())
		})
	}
}

// What is interrupted in the moment in which the reply comes goes back to a pool.
func TestInterrupt_leavesAConnectionUsableThatHadItsReply(t *testing.T) {
	t.Parallel()
	var conns interrupt.Conns
	l := newLink(t, &conns)
	w := begin(t, &conns)
	l.exchange(ask)
	w.Interrupt()
	assert.Nil(t, conns.End())
	l.exchange(ask)
}

func TestLate_keepsTheConnectionUntilTheReply(t *testing.T) {
	t.Parallel()
	var conns interrupt.Conns
	l := newLink(t, &conns)
	w := begin(t, &conns)
	l.write(ask)
	w.Interrupt()
	require.NoError(t, l.conn.Close())
	late := conns.End()
	require.NotNil(t, late)
	over := testwait.Go(func() error { late.Await(time.Now().Add(time.Hour)); return nil })
	l.serverReads(ask)
	l.serverWrites("> a push is no reply")
	assert.True(t, l.isOpen())
	select {
	case err := <-over:
		t.Fatal("there is no reply yet", err)
	default:
	}
	l.serverWrites(answer)
	require.NoError(t, await(t, over))
	assert.False(t, l.isOpen())
}

func TestLate_ends(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*link, *interrupt.Late){
		"when the server closes the connection": func(l *link, _ *interrupt.Late) { _ = l.server.Close() },
		"when the reply has begun":              func(l *link, _ *interrupt.Late) { l.serverWrites("+") },
		"by Close":                              func(_ *link, late *interrupt.Late) { late.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conns interrupt.Conns
			l := newLink(t, &conns)
			w := begin(t, &conns)
			l.write(ask)
			w.Interrupt()
			late := conns.End()
			over := testwait.Go(func() error { late.Await(time.Now().Add(time.Hour)); return nil })
			end(l, late)
			require.NoError(t, await(t, over))
		})
	}
}

// The client library would have waited for no longer.
func TestLate_endsWhenTheRequestWouldHave(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]struct{ library, until time.Duration }{
		"by the client library's deadline": {0, time.Hour},
		"by that of the request":           {time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conns interrupt.Conns
			l := newLink(t, &conns)
			w := begin(t, &conns)
			l.write(ask)
			require.NoError(t, l.conn.SetReadDeadline(time.Now().Add(bound.library)))
			w.Interrupt()
			late := conns.End()
			over := testwait.Go(func() error { late.Await(time.Now().Add(bound.until)); return nil })
			require.NoError(t, await(t, over))
			assert.False(t, l.isOpen())
		})
	}
}

// A client library that peeks at the descriptor does so only if no reply has come just now.
func TestSyscallConn_isNotAskedRightAfterAReply(t *testing.T) {
	t.Parallel()
	l := newLink(t, new(interrupt.Conns))
	raw, err := l.conn.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	looks := func() (looked bool) {
		require.NoError(t, raw.Read(func(uintptr) bool { looked = true; return true }))
		return looked
	}
	assert.True(t, looks(), "nothing was read yet")
	looked := true
	for deadline := time.Now().Add(patient); looked && time.Now().Before(deadline); { // a busy machine may need some
		l.exchange(ask)
		looked = looks()
	}
	assert.False(t, looked)
	testwait.Patience(patient).Until(t, "the reply is old", looks)
}

func TestConns_oneRequestAtATime(t *testing.T) {
	t.Parallel()
	var conns interrupt.Conns
	begin(t, &conns)
	assert.False(t, conns.Begin(&interrupt.Watch{}, []byte("other")))
	assert.Nil(t, conns.End())
	assert.True(t, conns.Begin(&interrupt.Watch{}, []byte("other")))
}

// A request may be written in several pieces, and only one of those has the owner.
func TestWrite_inPieces(t *testing.T) {
	t.Parallel()
	var conns interrupt.Conns
	l := newLink(t, &conns)
	w := begin(t, &conns)
	l.write(ask)
	l.write("the rest of it")
	read := l.reading()
	w.Interrupt()
	require.ErrorIs(t, await(t, read), os.ErrDeadlineExceeded)
	late := conns.End()
	require.NotNil(t, late)
	late.Close()
	late.Await(time.Now().Add(patient))
}

func TestDialer_returnsTheErrorOfDial(t *testing.T) {
	t.Parallel()
	var conns interrupt.Conns
	boom := errors.New("boom")
	dial := conns.Dialer(func(context.Context, string, string) (net.Conn, error) { return nil, boom })
	_, err := dial(t.Context(), "tcp", "localhost:1")
	require.ErrorIs(t, err, boom)
}

// noDeadlines is a connection as some tunnels make them.
type noDeadlines struct{ net.Conn }

func (noDeadlines) SetDeadline(time.Time) error     { return errors.ErrUnsupported }
func (noDeadlines) SetReadDeadline(time.Time) error { return errors.ErrUnsupported }

func TestInterrupt_closesAConnectionWithoutDeadlines(t *testing.T) {
	t.Parallel()
	var conns interrupt.Conns
	client, server := net.Pipe()
	conn, err := conns.Dialer(func(context.Context, string, string) (net.Conn, error) { return noDeadlines{client}, nil })(t.Context(), "", "")
	require.NoError(t, err)
	w := begin(t, &conns)
	go func() { _, _ = io.ReadFull(server, make([]byte, len(ask))) }()
	_, err = conn.Write([]byte(ask))
	require.NoError(t, err)
	l := &link{t: t, conn: conn, server: server}
	read := l.reading()
	w.Interrupt()
	require.Error(t, await(t, read))
	conns.End().Await(time.Now().Add(patient))
}
