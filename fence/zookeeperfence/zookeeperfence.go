// Package zookeeperfence refuses writes to ZooKeeper whose fencing token is stale.
//
//	err = zookeeperfence.Create(ctx, conn, "/orders/42/token", acl) // once
//	_, err = zookeeperfence.Write(ctx, conn, "/orders/42/token", m.FencingToken(),
//		&zk.SetDataRequest{Path: "/orders/42", Data: []byte("paid"), Version: -1})
//
// The newest token is kept in a node of its own, in the same ensemble as what it guards. A write
// first reads that node. Then it makes one transaction, which succeeds only if the token's node
// still has the version that was read, and which stores the new token if it is larger. So a request
// that arrives late, or comes from a holder that was stopped for an hour between the two steps, is
// checked when the servers carry it out. The lock may be on ZooKeeper or anywhere else.
//
// # The token's node
//
// It holds the token in digits; an empty node, or 0, means that nobody has written yet. Make the
// node when you set up the resource, by [Create] or otherwise, below a node that exists, and with
// the rights of the resource: a write has to read and to set the node. If the node is missing, or
// holds something else, each Write is refused with [fence.ErrUnknown]. So if you remove it together
// with the resource, former holders are kept out. A node that is made anew lets any token through.
// Its versions begin anew, too. A write may have read the old node, and arrive when the new node
// has the same version. Then it is accepted, even if the new node has seen a newer token. One node
// may guard any number of others.
//
// # What it is worth
//
// A majority agrees on each write and on its token, in one step. No stale write gets in, even if a
// minority of the servers is lost, or the read came from a server that lags. After a restore from a
// backup, the token is that of the backup; for the locks see
// [github.com/go-locker/locker.WithTokenBase]. Writes that do not go through the fence are not
// checked.
//
// # Contexts
//
// The calls of go-zookeeper take no context, and may take as long as the time-out of a session. The
// calls of this package still return when ctx ends. They leave behind a goroutine that waits until
// go-zookeeper gives up its request. While no server can be reached, they wait, as go-zookeeper
// does, or return its zk.ErrNoServer.
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

// Create makes a node that keeps a token, unless the node exists already. Its parent has to exist.
// The servers refuse a node without an ACL; [zk.WorldACL] of [zk.PermAll] lets everybody do
// everything.
func Create(ctx context.Context, conn *zk.Conn, tokenNode string, acl []zk.ACL) error {
	_, err := within(ctx, func() (string, error) { return conn.Create(tokenNode, nil, 0, acl) })
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("zookeeperfence: %q: making the node: %w", tokenNode, err)
	}
	return nil
}

// Write does ops in one transaction if token is above 0, and not below the token in tokenNode. In
// the same step it stores token in tokenNode. Otherwise it does nothing, and returns a
// [*fence.StaleError], whose Resource is tokenNode. It makes two requests, and two more each time
// that somebody has raised the token between them. For a token of 0 it makes none. ops are what
// [zk.Conn.Multi] takes, and the responses are those of ops, in order. If an operation fails,
// nothing is done, and its response says why. None of ops may set tokenNode. Without ops Write
// raises the token alone. A holder that reads before it writes raises the token first: then no
// earlier holder can change what it has read.
//
// After an error that is no refusal of the servers, such as zk.ErrConnectionClosed or that of ctx,
// the write may have been made. It may also be made later, even after the next write of the same
// holder: a token orders holders, not the requests of one holder. So do not change what ops point
// to. If ops may be done twice, Write may be called again with the same token. But an operation
// that demands a version, or makes a node, fails if the first write was made after all.
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
