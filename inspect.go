package locker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-locker/locker/driver"
)

// State is what the backend knew of a lock at one moment, for people who look, and for monitors. By
// the time it is read it may have changed: to act on it, hold the lock.
//
//	type State struct {
//		Held    bool
//		Holder  Participant   // zero if nobody holds it, or it is shared
//		Shares  []Participant // who hold it together, if it is shared
//		Left    time.Duration // until the hold expires, unless it is extended; 0: not known
//		Since   time.Time     // when the hold began, by the backend's clock; zero: not known
//		Token   uint64        // of the holder, or the last one that the backend remembers; 0: none
//		Waiters []Participant // in the backend's queue, the next one first
//	}
//
// [driver.State] says more of each.
type State = driver.State

// Participant holds a lock, or waits for it.
//
//	type Participant struct {
//		ID       string // by which the backend knows this attempt; empty: it has none
//		Metadata string // the text of WithMetadata, if the backend keeps it
//	}
type Participant = driver.Participant

// Inspect returns who holds the lock called name, for how long, and who waits for it. It does not
// contend: it changes nothing at the backend, and nobody there notices. The Token is the backend's,
// with the Client's token base added.
//
// It takes at most half the Client's TTL. When ctx ends it returns within milliseconds, whatever
// the server does, with an error that matches ctx.Err() and context.Cause(ctx). If the backend is
// unreachable, it returns the client library's error. If the backend does not tell, it returns
// ErrUnsupported, and if the Client is closed ErrClosed.
func (c *Client) Inspect(ctx context.Context, name string) (State, error) {
	s, err := c.inspect(ctx, name)
	if s.Token != 0 {
		s.Token += c.config.tokenBase
	}
	return s, wrap("inspect", name, err)
}

func (c *Client) inspect(ctx context.Context, name string) (State, error) {
	d, err := operator[inspector](c, "show who holds a lock")
	if err == nil {
		err = checkUTF8("name", name)
	}
	if err != nil {
		return State{}, err
	}
	return ask(ctx, c, c.config.ttl/2, func(ctx context.Context) (State, error) {
		return d.Inspect(ctx, c.config.qualified(name))
	})
}

// The methods of a driver.Operator, any of which a Driver may lack.
type (
	inspector interface {
		Inspect(ctx context.Context, name string) (State, error)
	}
	lister interface {
		List(prefix string) driver.Pager
	}
	forceReleaser interface {
		ForceRelease(ctx context.Context, name string, shown State) error
	}
)

// operator returns the Driver of c as a T, or an error that says what it cannot do.
func operator[T any](c *Client, cannot string) (d T, err error) {
	d, ok := c.driver.(T)
	if !ok {
		err = fmt.Errorf("%w: the backend does not %s", ErrUnsupported, cannot)
	}
	return d, err
}

// HeldError is an ErrHeld that tells who holds the lock. [errors.As] finds it in an error that
// matches ErrHeld if the backend's answer named the holder. No further request is made for that. A
// field of Holder may be empty.
//
//	type HeldError struct {
//		Holder Participant
//	}
type HeldError = driver.HeldError

// List returns the names of the held locks that begin with prefix. They come in no order, and
// without the prefix of WithPrefix. If prefix is "", List returns the names of all locks that are
// held by Clients with the same [WithPrefix]. It does not contend: it changes nothing at the
// backend, and nobody there notices.
//
// Names come in pages, and a page is asked for when it is needed, so that a loop that ends early
// asks for no more. No request keeps a server busy for long, but there may be many: on Redis they
// go through all keys of each server. A name that is held all the while comes at least once. One
// that is taken or released meanwhile may be missing, and any may come twice.
//
// After an error, which comes with the name "", there is nothing more. A page takes at most half
// the Client's TTL. The errors are those of [Client.Inspect]. ErrUnsupported means that the backend
// does not list locks, as S3. It also comes at the end if locks are held whose names the backend
// does not keep, and then says how many: etcd and ZooKeeper keep only hashes of long names.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := c.list(ctx, prefix, func(name string) bool { return yield(name, nil) }); err != nil {
			yield("", wrap("list", "", err))
		}
	}
}

// list calls yield with each name until it returns false.
func (c *Client) list(ctx context.Context, prefix string, yield func(string) bool) error {
	d, err := operator[lister](c, "list its locks")
	switch {
	case err != nil:
		return err
	case !utf8.ValidString(prefix):
		return fmt.Errorf("prefix %q is not UTF-8", prefix)
	}
	next := d.List(c.config.qualified(prefix))
	for unnamed := 0; ; {
		page, err := ask(ctx, c, c.config.ttl/2, next)
		if err != nil {
			return err
		}
		for _, name := range page.Names {
			if !yield(strings.TrimPrefix(name, c.config.qualified(""))) {
				return nil
			}
		}
		unnamed += page.Unnamed
		switch {
		case !page.Last:
		case unnamed > 0:
			return fmt.Errorf("%w: %d more locks are held, but their names are long, and the backend has only hashes of them", ErrUnsupported, unnamed)
		default:
			return nil
		}
	}
}

// ForceRelease ends the hold that shown describes, whichever process has it. name is that of the
// lock, and shown is what [Client.Inspect] returned for it. Some backends store the Token, some the
// IDs of the Holder or the Shares, and some both. The backend compares shown with what it stores.
// So it ends no other hold, even if the State in shown is old. It ends no share that another reader
// has taken since.
//
// It is for an operator, if the holder cannot be stopped. ForceRelease does not stop the holder.
// The holder works on until it hears of the loss: at its next renewal, or by the ErrLost of its
// next Extend or Unlock. Meanwhile others can have the lock, under a larger token; a waiter has it
// at once. Only a resource that checks the fencing token is safe from the former holder.
//
// It returns ErrNotHeld if nobody holds the lock, and ErrHeld if another hold is there. Both mean
// that the hold which was shown has ended. After any other error the hold may have ended: call
// ForceRelease again. It takes at most half the Client's TTL. If the backend cannot do it, it
// returns ErrUnsupported, and if the Client is closed ErrClosed.
func (c *Client) ForceRelease(ctx context.Context, name string, shown State) error {
	return wrap("forcerelease", name, c.forceRelease(ctx, name, shown))
}

func (c *Client) forceRelease(ctx context.Context, name string, shown State) error {
	d, err := operator[forceReleaser](c, "end the hold of another")
	if err == nil {
		err = checkUTF8("name", name)
	}
	base := c.config.tokenBase
	switch {
	case err != nil:
		return err
	case !shown.Held:
		return ErrNotHeld
	case shown.Token == 0 && shown.Holder.ID == "", shown.Token != 0 && shown.Token <= base:
		return errors.New("the State describes no hold: pass what Inspect of a Client with the same token base returned")
	case shown.Token != 0:
		shown.Token -= base
	}
	_, err = ask(ctx, c, c.config.ttl/2, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, d.ForceRelease(ctx, c.config.qualified(name), shown)
	})
	return err
}

// Warnings returns a sentence for each setting of the backend's servers with which a promise may be
// broken. An example is a setting that makes Redis evict the keys of held locks. An empty result
// does not prove that all is well: a server may hide its settings, perhaps only from this user, and
// some Drivers do not ask. If the backend is unreachable, it returns the client library's error.
//
// A Client with a logger asks for the warnings by itself, once, after its first grant. No call
// waits for the answer.
func (c *Client) Warnings(ctx context.Context) ([]string, error) {
	w, ok := c.driver.(driver.Warner)
	if !ok {
		return nil, nil
	}
	warnings, err := ask(ctx, c, warningsTimeout, w.Warnings)
	return warnings, wrap("warnings", "", err)
}

const warningsTimeout = 5 * time.Second

// ask makes a request that concerns no hold, for at most timeout. It ends when Close begins. If the
// Driver does not heed that, ask returns soon all the same.
func ask[Answer any](ctx context.Context, c *Client, timeout time.Duration, send func(context.Context) (Answer, error)) (Answer, error) {
	var none Answer
	if ctx.Err() != nil {
		return none, interrupted(ctx, nil)
	}
	if err := c.begin(); err != nil {
		return none, err
	}
	defer c.calls.Done()
	r := newRequest(ctx, c.open, timeout)
	defer r.end()
	type reply struct {
		answer Answer
		err    error
	}
	got, heeded := within(r, func() (got reply) { got.answer, got.err = send(r); return got })
	if !heeded {
		got.err = r.Err()
	}
	switch {
	case got.err == nil:
		return got.answer, nil
	case ctx.Err() != nil:
		return none, interrupted(ctx, nil)
	case c.open.Err() != nil:
		return none, ErrClosed
	default:
		return none, r.explain(got.err)
	}
}
