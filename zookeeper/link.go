package zookeeper

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// link is a connection to one server. It works around what go-zookeeper, version 1.0.4, does with
// it:
//
//	deadlines  it waits 2/3 of a time-out for an answer, 20/3 of it for the first (no issue is known),
//	           which may never come: a server that starts leaves connections open (ZOOKEEPER-5051)
//	holdReads  its goroutines race for lastZxid (go-zookeeper/zk#35, samuel/go-zookeeper#260)
//	Write      it answers a request twice that it cannot write, and blocks (go-zookeeper/zk#163)
type link struct {
	net.Conn
	began        time.Time
	replyTimeout time.Duration // the first reply is that there is a session
	established  bool          // there was a session on it
	silent       bool          // there was none in time

	asked  atomic.Bool     // a request was sent that does not authenticate
	held   context.Context // replies are read when it has ended; nil: at once
	resume context.CancelCauseFunc
}

// errWatchesSent ends a link's held. Another cause is the error of Read.
var errWatchesSent = errors.New("the watches are sent")

// holdReads delays all replies until the library has set its watches again: it reads lastZxid for
// them in one goroutine, and writes it for each reply in another, without a lock. It authenticates
// before that, and the reply to that has no zxid.
func (l *link) holdReads() { l.held, l.resume = context.WithCancelCause(context.Background()) }

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.silent = l.silent || !l.established && timedOut(err)
	if l.held != nil && l.asked.Load() {
		<-l.held.Done()
		if cause := context.Cause(l.held); !errors.Is(cause, errWatchesSent) {
			return 0, cause
		}
	}
	return n, err
}

// These are operations of requests. They stand behind the length and the number of the request.
const (
	opSetAuth    = 100
	opSetWatches = 101
)

// Write closes the connection if it fails, and reports success: the library gets the error from Read.
func (l *link) Write(b []byte) (int, error) {
	op := uint32(0)
	if l.held != nil && len(b) >= 12 {
		if op = binary.BigEndian.Uint32(b[8:]); op != opSetAuth {
			l.asked.Store(true)
		}
	}
	_, err := l.Conn.Write(b)
	if op == opSetWatches {
		l.resume(errWatchesSent)
	}
	if err != nil {
		_ = l.Close()
	}
	return len(b), nil
}

func (l *link) Close() error {
	if l.resume != nil {
		l.resume(net.ErrClosed)
	}
	return l.Conn.Close()
}

func (l *link) SetReadDeadline(t time.Time) error  { return l.Conn.SetReadDeadline(l.capped(t)) }
func (l *link) SetWriteDeadline(t time.Time) error { return l.Conn.SetWriteDeadline(l.capped(t)) }

func (l *link) capped(t time.Time) time.Time {
	if latest := time.Now().Add(l.replyTimeout); t.After(latest) {
		return latest
	}
	return t
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// negotiated returns the time-out of the connection's session, which the library does not tell (no
// issue is known). The library writes it before the state becomes StateHasSession.
func negotiated(conn *zk.Conn) (time.Duration, error) {
	const field = "sessionTimeoutMs"
	f := private(conn, field)
	if !f.IsValid() || !f.CanInt() {
		return 0, errors.New("this version of go-zookeeper has no " + field + ": the session's time-out cannot be read: use version 1.0.4")
	}
	return time.Duration(f.Int()) * time.Millisecond, nil
}

// hasWatches reports whether the library has watches to send again. It is called in the goroutine
// that is about to send them.
func hasWatches(conn *zk.Conn) bool {
	f := private(conn, "watchers")
	return f.IsValid() && f.Kind() == reflect.Map && f.Len() > 0
}

func private(conn *zk.Conn, field string) reflect.Value {
	return reflect.ValueOf(conn).Elem().FieldByName(field)
}
