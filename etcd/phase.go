package etcd

import (
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The value of a key is the metadata of its contender, a writer. That of a share is shareMark, its token when that is settled, a zero byte, and the metadata.
const (
	shareMark   = "\x00locker share\x00"
	plainMark   = "\x00locker plain\x00" // before a writer's metadata that begin with a zero byte
	ownRevision = "own"                  // the token is the revision that created the key
)

func plainValue(metadata string) string {
	if strings.HasPrefix(metadata, "\x00") {
		return plainMark + metadata
	}
	return metadata
}

func shareValue(token, metadata string) string { return shareMark + token + "\x00" + metadata }

func formatToken(token int64) string { return strconv.FormatInt(token, 10) }

// value is what the value of a contender's key says.
type value struct {
	shared   bool
	token    int64 // of a share; 0 if it is not settled
	metadata string
}

func parseValue(kv *mvccpb.KeyValue) value {
	s := string(kv.Value)
	rest, ok := strings.CutPrefix(s, shareMark)
	if !ok {
		return value{metadata: strings.TrimPrefix(s, plainMark)}
	}
	digits, metadata, _ := strings.Cut(rest, "\x00")
	v := value{shared: true, metadata: metadata}
	if v.token, _ = strconv.ParseInt(digits, 10, 64); digits == ownRevision {
		v.token = kv.CreateRevision
	}
	return v
}

func isWriter(kv *mvccpb.KeyValue, folder string) bool {
	return kv != nil && isContender(kv, folder) && !parseValue(kv).shared
}

// A hint, the value of a key beside the folder, names a share whose token is settled, so that not every share has to read them all to find one. It counts for
// nothing if that share is not there, and so it may be old, or missing. The share that put it deletes it when it ends.
const hintLasts = 300 // revisions, which a hundred shares make; then there is a new one

// hintValue names us, by our ID, the revision that created our key, and our token. Either is ownRevision if it is that of the hint.
func (p *place) hintValue(created, token string) string {
	return p.key[len(p.folder):] + "\x00" + created + "\x00" + token
}

func (c *claim) putHint(value string) clientv3.Op {
	return clientv3.OpPut(c.hint(), value, clientv3.WithLease(c.session.id))
}

// dropHint deletes the hint if it names us.
func (c *claim) dropHint() []clientv3.Op {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hinted == "" {
		return nil
	}
	return []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(c.hint()), "=", c.hinted)}, []clientv3.Op{clientv3.OpDelete(c.hint())}, nil)}
}

// hinting returns what our share sees of the queue if all that it has read of others is the hint, or nil.
func (p *place) hinting(own, hint *mvccpb.KeyValue) phase {
	if hint == nil {
		return phase{own: own}
	}
	seen := phase{own: own, hint: hint.ModRevision}
	fields := strings.Split(string(hint.Value), "\x00")
	if len(fields) != 3 {
		return seen
	}
	created, token := revisionOf(fields[1], hint), revisionOf(fields[2], hint)
	if created > 0 && token > 0 {
		seen.witness = &mvccpb.KeyValue{Key: []byte(p.folder + fields[0]), CreateRevision: created, Value: []byte(shareValue(formatToken(token), ""))}
	}
	return seen
}

// isOld reports whether the share of the hint was there so long before the one that created makes that it may soon end.
func (p phase) isOld(created int64) bool {
	return p.witness != nil && created > p.witness.CreateRevision+hintLasts
}

func revisionOf(field string, hint *mvccpb.KeyValue) int64 {
	if field == ownRevision {
		return hint.ModRevision
	}
	n, _ := strconv.ParseInt(field, 10, 64)
	return n
}

// phase is what a share sees of the queue.
type phase struct {
	writer string // the key of the last writer before it, or empty
	own    *mvccpb.KeyValue
	hint   int64 // the revision of the hint that was read, or 0

	// witness is the share of the hint, a share whose token is settled, or else the oldest share. A share that settles its token when none is settled settles that of the oldest, too.
	// Of two that do so at once one fails, and then sees it: all have the same token. See docs/protocols-consensus.md.
	witness *mvccpb.KeyValue
}

// phaseOf returns what the keys of the folder, the oldest first, show to our share, which is among
// them, and was created then.
func (p *place) phaseOf(keys []*mvccpb.KeyValue, created int64) (seen phase) {
	for _, kv := range keys {
		switch v := parseValue(kv); {
		case !isContender(kv, p.folder):
		case !v.shared && kv.CreateRevision < created:
			seen.writer = string(kv.Key)
		case !v.shared:
		case seen.witness == nil, v.token != 0:
			seen.witness = kv
		}
		if kv.CreateRevision == created {
			seen.own = kv
		}
	}
	return seen
}
