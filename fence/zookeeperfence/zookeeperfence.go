// Package zookeeperfence refuses writes to ZooKeeper whose fencing token is stale.
//
//	err = zookeeperfence.Create(ctx, conn, "/orders/42/token", acl) // once
//	_, err = zookeeperfence.Write(ctx, conn, "/orders/42/token", m.FencingToken(),
//		&zk.SetDataRequest{Path: "/orders/42", Data: []byte("paid"), Version: -1})
//
// The newest token is kept in a node of its own, in the same ensemble as what it guards. A write reads that, and is one
// transaction that goes through only if the token's node still has the version that was read, and that puts the token there
// if it is a larger one. So a request that arrives late, or comes from a holder that was stopped for an hour
// between the two, is judged when it is done. The lock may be on ZooKeeper or anywhere else.
//
// # The token's node
//
// It holds the token in digits; nothing, or 0, is that nobody has written yet. Who sets the resource up makes the node, by
// [Create] or otherwise, below a node that is there, and with the rights that the resource has: to read and to set
// it is what a write needs. A node that is not there, or holds something else, has each Write refused with
// [fence.ErrUnknown], so that removing it together with the resource keeps out whoever still believes to hold the lock.
// Making it anew lets any token through; and its versions begin anew as well, so that a write which has read the node before
// it was removed, and comes when the new one has the same version, is not even refused after a newer one. One node may guard
// any number of others.
//
// # What it is worth
//
// A majority agrees on each write and on its token, in one step: no stale write gets in, also through the loss of a
// minority of the servers, or if the read came from one that lags. What is restored from a backup has the token of that time,
// see [github.com/go-locker/locker.WithTokenBase] for the locks. Nothing guards what writes past the fence.
//
// # Contexts
//
// The library's calls take no context, and may take as long as the time-out of a session. Those of this package return when
// ctx ends all the same, and leave behind a goroutine that waits until the library lets go of its request. While no server can
// be reached they wait, as the library does, or return its zk.ErrNoServer.
package zookeeperfence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/fence"
)

// Create makes a node that keeps a token, if it is not there, and leaves it as it is if it is. Its parent has to be there.
// The servers refuse it without an ACL; [zk.WorldACL] of [zk.PermAll] has everybody do everything.
func Create(ctx context.Context, conn *zk.Conn, tokenNode string, acl []zk.ACL) error {
	_, err := within(ctx, func() (string, error) { return conn.Create(tokenNode, nil, 0, acl) })
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("zookeeperfence: %q: making the node: %w", tokenNode, err)
	}
	return nil
}

// Write does ops in one transaction if token is not 0 and not below the one in tokenNode, which then becomes token;
// otherwise it does nothing and returns a [*fence.StaleError], whose Resource is tokenNode. It is two requests, and two
// more each time that somebody has raised the token between them; for a token of 0 it is none. ops are what
// [zk.Conn.Multi] takes, and the responses those of ops, in order; when an operation fails nothing is done, and its
// response says why. None of them may set tokenNode. Without ops it raises the token alone, which a holder does first
// that reads before it writes: from then on what it has read stays as it is.
//
// After an error that is no refusal of the servers', such as zk.ErrConnectionClosed or that of ctx, the write may have
// been made, or be made later, even after the next one of the same holder: a token orders holders, and not the requests of
// one. What ops point to must not be changed then. To make the write again, with the same token, has the same effect if
// that of ops is the same when they are done twice: one that demands a version, or makes a node, fails if the first was
// made after all.
func Write(ctx context.Context, conn *zk.Conn, tokenNode string, token uint64, ops ...any) ([]zk.MultiResponse, error) {
	if err := cmp.Or(fence.Check(tokenNode, token, 0), checkOps(tokenNode, ops)); err != nil {
		return nil, err
	}
	for {
		newest, err := within(ctx, func() (seen, error) { return read(conn, tokenNode) })
		if err != nil {
			return nil, fmt.Errorf("zookeeperfence: %q: %w", tokenNode, err)
		}
		if err := fence.Check(tokenNode, token, newest.token); err != nil {
			return nil, err
		}
		all := append([]any{newest.condition(tokenNode, token)}, ops...)
		said, err := within(ctx, func() ([]zk.MultiResponse, error) { return conn.Multi(all...) })
		switch {
		case len(said) != len(all): // no answer, and so an error
			return nil, fmt.Errorf("zookeeperfence: %q: %w", tokenNode, err)
		case errors.Is(said[0].Error, zk.ErrBadVersion), errors.Is(said[0].Error, zk.ErrNoNode):
			// Another token has come in between, or the node is gone: reading says which. This is no echo of a request of ours: none has gone out that was not answered.
			continue
		case err != nil:
			return said[1:], fmt.Errorf("zookeeperfence: %q: %w", tokenNode, err)
		}
		return said[1:], nil
	}
}

// checkOps refuses operations that set the token's node: their data would be compared as a token.
func checkOps(tokenNode string, ops []any) error {
	for _, op := range ops {
		if set, ok := op.(*zk.SetDataRequest); ok && set.Path == tokenNode {
			return fmt.Errorf("zookeeperfence: %q: one of the operations sets this node: the token needs a node of its own", tokenNode)
		}
	}
	return nil
}

// seen is what a token's node was found to have.
type seen struct {
	token   uint64
	version int32
}

func read(conn *zk.Conn, tokenNode string) (seen, error) {
	data, stat, err := conn.Get(tokenNode)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return seen{}, fmt.Errorf("%w: there is no such node, which Create makes when the resource is set up: %w", fence.ErrUnknown, err)
	case err != nil:
		return seen{}, err
	case len(data) == 0:
		return seen{0, stat.Version}, nil
	}
	token, err := strconv.ParseUint(string(data), 10, 64)
	if err != nil {
		return seen{}, fmt.Errorf("%w: its data are no token: %.40q", fence.ErrUnknown, data)
	}
	return seen{token, stat.Version}, nil
}

// condition is the operation by which a transaction fails if the node has changed since, and otherwise has it hold token. Writes
// of one holder do not change it, and so do not get into each other's way.
func (s seen) condition(tokenNode string, token uint64) any {
	if token == s.token {
		return &zk.CheckVersionRequest{Path: tokenNode, Version: s.version}
	}
	return &zk.SetDataRequest{Path: tokenNode, Data: strconv.AppendUint(nil, token, 10), Version: s.version}
}

// within calls f, which knows no context, and returns when ctx ends if f has not.
func within[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var a answer
	if ctx.Err() != nil {
		return a.value, context.Cause(ctx)
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := f()
		answers <- answer{value, err}
	}()
	select {
	case a = <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return a.value, context.Cause(ctx)
	}
}
