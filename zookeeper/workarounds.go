package zookeeper

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// This file has what works around go-zookeeper, version 1.0.4:
//
//	negotiated     Conn does not tell the session's time-out. No issue is known.
//	run            calls take no context (go-zookeeper/zk#12)
//	deadlines      the library waits 2/3 of a time-out for an answer, 20/3 of it for the first, and has no option for that. No issue is known.
//	holdAnswers    a race between its goroutines over lastZxid (go-zookeeper/zk#35, samuel/go-zookeeper#260)
//	Write          a request that cannot be written is answered twice, which blocks the library for good (go-zookeeper/zk#163)
//	makeContainer  CreateContainer reads its answer, when the library closes, while another goroutine writes it. No issue is known.
//
// Elsewhere, by what the library offers: watch keeps watches, which cannot be removed (go-zookeeper/zk#76); replaced tells by the session's
// number that the library has begun another (go-zookeeper/zk#159); network resolves names at each attempt (samuel/go-zookeeper#44), and
// closes the connection on which a session has expired, which the library leaves open (no issue is known).

// negotiated returns the time-out of the connection's session. The library writes it before the
// state becomes StateHasSession.
func negotiated(conn *zk.Conn) (time.Duration, error) {
	const field = "sessionTimeoutMs"
	if conn.State() != zk.StateHasSession {
		return 0, errUnreachable
	}
	f := reflect.ValueOf(conn).Elem().FieldByName(field)
	if !f.IsValid() || !f.CanInt() {
		return 0, errors.New("this version of go-zookeeper has no " + field + ": the session's time-out cannot be read: use version 1.0.4")
	}
	return time.Duration(f.Int()) * time.Millisecond, nil
}

// run calls f in a goroutine, which it leaves when ctx ends.
func run[T any](ctx context.Context, s *session, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var a answer
	answers := make(chan answer, 1)
	err := s.driver.spawn(func() {
		value, err := f()
		answers <- answer{value, err}
	})
	if err != nil {
		return a.value, err
	}
	select {
	case a = <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return a.value, ctx.Err()
	}
}

// link is a connection to one server.
type link struct {
	net.Conn
	address  string // as it was given
	began    time.Time
	greeting time.Duration // how long the server may take to make the session, or take it up
	patience time.Duration // and for later answers
	greeted  bool          // there was a session on it
	silent   bool          // there was none in time

	held   chan struct{} // answers are read when it is closed; nil: at once
	resume func()        // closes it
}

// holdAnswers has no answer read until the library has sent its watches again, or d has passed: it notes an answer's zxid in one
// goroutine while it reads it, for its watches, in another, without a lock.
func (l *link) holdAnswers(d time.Duration) {
	l.held = make(chan struct{})
	l.resume = sync.OnceFunc(func() { close(l.held) })
	time.AfterFunc(d, l.resume)
}

func (l *link) Read(b []byte) (int, error) {
	if l.held != nil {
		<-l.held
	}
	n, err := l.Conn.Read(b)
	l.silent = l.silent || !l.greeted && timedOut(err)
	return n, err
}

// opSetWatches is the operation of a request that sets watches again. It stands behind the length and the number of the request.
const opSetWatches = 101

// Write closes the connection when it fails, and reports success: the library hears of it from Read.
func (l *link) Write(b []byte) (int, error) {
	_, err := l.Conn.Write(b)
	if l.resume != nil && len(b) >= 12 && binary.BigEndian.Uint32(b[8:]) == opSetWatches {
		l.resume()
	}
	if err != nil {
		_ = l.Close()
	}
	return len(b), nil
}

func (l *link) SetReadDeadline(t time.Time) error  { return l.Conn.SetReadDeadline(l.capped(t)) }
func (l *link) SetWriteDeadline(t time.Time) error { return l.Conn.SetWriteDeadline(l.capped(t)) }

func (l *link) capped(t time.Time) time.Time {
	patience := l.patience
	if !l.greeted {
		patience = l.greeting
	}
	if latest := time.Now().Add(patience); t.After(latest) {
		return latest
	}
	return t
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// makeContainer makes a container before the connection closes, or not at all.
func (s *session) makeContainer(conn *zk.Conn, node string) (string, error) {
	if s.own != nil {
		s.own.making.RLock()
		defer s.own.making.RUnlock()
	}
	return conn.CreateContainer(node, nil, zk.FlagContainer, s.driver.acl)
}
