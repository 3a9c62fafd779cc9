// Package carry has the keys under which contexts have what the core and package multi tell each
// other.
package carry

// Innermost is the key of the innermost context of a hold that a context is or derives from.
type Innermost struct{}

// Later is the key of a func(*locker.Hold) bool, which reports whether the Unlock of a hold leaves
// it to its caller to end the contexts of the hold.
type Later struct{}
