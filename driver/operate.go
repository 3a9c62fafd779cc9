package driver

import "context"

// Lister is a Driver that can tell which locks are held, without contending for them.
type Lister interface {
	// List returns a Pager for the held locks whose names begin with prefix. Names and prefix are
	// as in Request.Name: they include the Client's prefix. It makes no request.
	List(prefix string) Pager
}

// Pager returns the next page of a list each time that it is called. It is called by one goroutine
// at a time, and not again after the last page or an error.
//
//  1. It changes nothing at the backend, makes nothing there, and wakes nobody.
//  2. A call makes few requests, and none that keeps a server busy for long, however many locks
//     there are. So a page may be empty.
//  3. A lock that is held from the first call to the last is on a page. A lock that is taken or
//     released meanwhile may be on a page or on none. Any lock may be on two pages. A hold that had
//     expired when its page was made does not count as held.
//  4. ctx bounds the call, and has a deadline. If the backend is unreachable, it returns the client
//     library's error before the deadline.
type Pager func(ctx context.Context) (Page, error)

// Page is a part of a list.
type Page struct {
	Names []string // of locks that are held, in no order that counts

	// Unnamed counts locks that are held and are not in Names, because the backend keeps only
	// hashes of their names. Their names may begin with the prefix or not.
	Unnamed int

	Last bool // there are no more
}

// ForceReleaser is a Driver that can end the hold of another process.
type ForceReleaser interface {
	// ForceRelease ends a hold of the lock called name: the hold that the State in shown describes.
	// shown is what an Inspect has returned, perhaps long ago. Another Driver of this backend may
	// have made this Inspect. In shown, Held is true. If shown has a Holder, it has a Token, the
	// Holder's ID, or both.
	//
	//  1. It ends the hold that is there only if its Token and ID are those in shown. It compares
	//     and ends in one step. It does not compare what is zero. If the lock is shared by now,
	//     ForceRelease ends the Shares in shown. If shown has a Holder instead, because it is from
	//     before a Downgrade, ForceRelease ends the share that has the ID of this Holder.
	//  2. The lock is then free as after a Release: a waiter is woken, or has it, and the next token
	//     is larger.
	//  3. After that, Extend and Release of the former holder return ErrLost. If the reply to such
	//     a Release is lost, the repeated Release returns ErrLost, too. A request of the former
	//     holder that arrives late extends nothing. What such a request can still take ends within
	//     one TTL of its sending, as after a Release: see [Claim].
	//  4. It returns ErrNotHeld if nobody holds the lock, and ErrHeld, or a HeldError, if another hold
	//     is there than the one described. After any other error the outcome is unknown.
	//  5. ctx bounds the call, and has a deadline. If the backend is unreachable, it returns the
	//     client library's error before the deadline.
	ForceRelease(ctx context.Context, name string, shown State) error
}
