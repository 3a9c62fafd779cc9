package driver

import "context"

// Proposer is a Driver that can be one of the nodes of a quorum: there the token is the
// caller's, who has to get the same one accepted by a majority.
type Proposer interface {
	Driver

	// Propose is Acquire with a token of the caller's choice. The lease's Token is token if the
	// node accepted it, which it does only in the step that grants the lease and only if the token
	// is larger than any it has accepted before; else a larger one, to which the caller may raise
	// the others. A denied Propose changes nothing.
	//
	// A node that forgets tokens after a time does not accept one so far ahead of its clock that
	// clocks might not have passed it by then. Where it knows no last token it does not accept one
	// that its clock has passed: what it has forgotten may be larger. In both cases it grants the
	// lease under its clock, or what is larger than its last token.
	Propose(ctx context.Context, req Request, token uint64) (RaisableLease, error)

	// Address returns the host:port of the server, without credentials: the same server must not be
	// two nodes of one quorum. It returns "" if the address is not known, or is not that of one server.
	Address() string
}

// RaisableLease is a Lease whose token can be raised while it lasts.
type RaisableLease interface {
	Lease

	// Raise makes token the lease's own, and from then on its Token, if it is that already or
	// larger than any that the node has accepted; else, or if the lease has ended, it returns
	// ErrLost. With a token no smaller than Token, ErrLost means that the lease has ended. A token
	// that Propose would not accept, being too far ahead, is ErrUnsupported, and changes nothing:
	// but one that is not as far ahead of the node's last is accepted.
	Raise(ctx context.Context, token uint64) error
}
