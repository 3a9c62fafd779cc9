// Package etcdfence refuses writes to etcd whose fencing token is stale.
//
//	_, err = etcdfence.Write(ctx, cli, "orders/42/token", m.FencingToken(), clientv3.OpPut("orders/42", "paid"))
//
// The newest token is kept in a key of its own, in the same cluster as what it guards, and compared
// in the transaction that writes. So a request that arrives late, or comes from a holder that was
// stopped for an hour, is checked when etcd carries it out, not when it was sent. The lock may be
// on etcd or anywhere else.
//
// # The token's key
//
// It holds the token in 20 digits, with leading zeros, because etcd compares texts. etcdctl shows
// it, and
//
//	etcdctl put orders/42/token 00000000000000001000
//
// sets it by hand. If the key is missing, nobody has written to the resource yet. So if you delete
// the key, any token is let through. etcd can only compare texts. If the comparison shows that the
// value is no token, each Write is refused with [fence.ErrUnknown]. The key has no lease, and takes
// some hundred bytes for each resource, until somebody deletes it. One key may guard any number of
// others.
//
// # A lock on the same cluster
//
// If lock and resource share a cluster, a transaction could instead check that the lock's own key
// is still there, with the token as its create revision, as IsOwner of etcd's package concurrency
// does. That would be stricter: it would refuse a holder whose session has ended, even if nobody
// has taken the lock since. It is not offered here, because the keys of this module's locks are not
// part of its API, and it would bind the resource to the lock's backend.
//
// # What it is worth
//
// A majority agrees on each write and on its token, in one step: no stale write gets in, even if a
// minority of the members is lost. After a restore from a backup, the token is that of the backup;
// for the locks see [github.com/go-locker/locker.WithTokenBase]. Writes that do not go through the
// fence are not checked.
package etcdfence

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/fence"
)

// Write does ops in one transaction if token is above 0, and not below the token that tokenKey has.
// The transaction also stores token in tokenKey. Otherwise it does nothing and returns a
// [*fence.StaleError], whose Resource is tokenKey, or an error that matches [fence.ErrUnknown] if
// the value of tokenKey is no token. It makes one request, and none for a token of 0. The response
// has the responses of ops, in order. For conditions and branches of your own use [clientv3.OpTxn].
// Without ops Write raises the token alone. A holder that reads before it writes raises the token
// first: then no earlier holder can change what it has read.
//
// Neither tokenKey nor any other key may be written twice in one transaction, and a server takes
// 128 operations unless it is configured otherwise, of which one is for the token. The user needs
// the right to read and write tokenKey.
//
// After an error that is no refusal of the server, such as a lost connection, the write may have
// been made. It may also be made later, even after the next write of the same holder: a token
// orders holders, not the requests of one holder. If ops may be done twice, Write may be called
// again with the same token.
func Write(ctx context.Context, kv clientv3.KV, tokenKey string, token uint64, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if err := fence.Check(tokenKey, token, 0); err != nil {
		return nil, err
	}
	// Every comparison with the value of a missing key is false. So each condition asks for a reason to refuse, and a missing
	// key gives none.
	newest := clientv3.Value(tokenKey)
	look := clientv3.OpGet(tokenKey)
	write := append(slices.Clip(ops), clientv3.OpPut(tokenKey, encode(token)))
	resp, err := kv.Txn(ctx).
		If(clientv3.Compare(newest, ">", encode(token))).
		Then(look).
		Else(clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(newest, "<", encode(1))}, []clientv3.Op{look}, write)).
		Commit()
	if err != nil {
		return nil, fmt.Errorf("etcdfence: %q: %w", tokenKey, err)
	}
	if !resp.Succeeded {
		inner := (*clientv3.TxnResponse)(resp.Responses[0].GetResponseTxn())
		if !inner.Succeeded {
			resp.Succeeded, resp.Responses = true, inner.Responses[:len(ops)]
			return resp, nil
		}
		resp = inner
	}
	return nil, refusal(tokenKey, token, resp)
}

// refusal returns why there was no write. The response has the token's key, which was there.
func refusal(tokenKey string, token uint64, refused *clientv3.TxnResponse) error {
	value := string(refused.Responses[0].GetResponseRange().Kvs[0].Value)
	newest, err := strconv.ParseUint(value, 10, 64)
	if err != nil || encode(newest) != value || newest == 0 {
		return fmt.Errorf("etcdfence: %q: %w: its value is no token of 20 digits: %.40q", tokenKey, fence.ErrUnknown, value)
	}
	return fence.Check(tokenKey, token, newest)
}

// encode returns a token as text. The texts have the order of the tokens.
func encode(token uint64) string { return fmt.Sprintf("%020d", token) }
