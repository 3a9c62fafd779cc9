package driver

import (
	"context"
	"time"
)

// Inspector is a Driver that can tell who holds a lock, without contending for it.
type Inspector interface {
	// Inspect looks at the lock called name, which includes the prefix, as Request.Name does.
	//
	//  1. It changes nothing at the backend, makes nothing there, and wakes nobody.
	//  2. The State was true at one moment, as far as the backend can tell. A hold that has expired
	//     does not count. For a lock that was never held, Inspect returns the zero State, and no
	//     error.
	//  3. What is not known is left zero, never guessed.
	//  4. ctx bounds the call, and has a deadline. If the backend is unreachable, it returns the
	//     client library's error before the deadline.
	Inspect(ctx context.Context, name string) (State, error)
}

// State is what the backend knew of a lock at one moment, for people who look, and for monitors. By
// the time it is read it may have changed: to act on it, hold the lock.
type State struct {
	// Held is true if somebody holds the lock. A release may hand the lock over to the first
	// waiter. Until this waiter has taken it, Held is false, and nobody else can take the lock.
	Held   bool
	Holder Participant // the zero Participant if nobody holds it

	// Shares are those who hold the lock together, if it is shared: Held is true then, and Holder
	// the zero Participant.
	Shares []Participant

	// Left is how long the hold lasts unless it is extended, by the backend's clock. (The holder
	// goes by its own clock.) Of several shares it is the longest time. It is 0 if nobody holds the
	// lock, or if the backend does not tell.
	Left time.Duration

	// Since is when the hold began, reckoned from the backend's clock. Of shares that are held
	// together, it is when the first one began. It is zero if nobody holds the lock, or if the
	// backend does not tell: etcd and ZooKeeper do not.
	Since time.Time

	// Token is the fencing token of the holder, or else the last one that the backend remembers. It
	// is 0 if the backend knows none.
	Token uint64

	// Waiters are those who stand in the backend's queue, the next one first, without the holder.
	// One that has died stands there until the backend notices. Where waiters poll there is no
	// queue.
	Waiters []Participant
}

// Participant holds a lock, or waits for it.
type Participant struct {
	// ID is what the backend calls this attempt to hold. At the time, no other attempt has the same
	// ID. It is empty if the backend has none.
	ID string

	// Metadata is the text of WithMetadata. It is also empty for a waiter whose metadata the
	// backend does not keep. Redis keeps the metadata of holders, and of readers that wait, but not
	// of writers that wait.
	Metadata string
}
