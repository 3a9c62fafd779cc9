package etcd

import (
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
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

// phase is what a share sees of the queue.
type phase struct {
	writer string // the key of the last writer before it, or empty
	own    *mvccpb.KeyValue

	// witness is a share whose token is settled, or else the oldest share. A share that settles its token when none is settled settles that of the oldest, too.
	// Of two that do so at once one fails, and then sees it: all have the same token. See docs/protocols-consensus.md.
	witness *mvccpb.KeyValue
}

// phaseOf returns what the keys of the folder, the oldest first, show to our share, which is among them.
func (l *lease) phaseOf(keys []*mvccpb.KeyValue) (p phase) {
	created := l.revision()
	for _, kv := range keys {
		switch v := parseValue(kv); {
		case !isContender(kv, l.folder):
		case !v.shared && kv.CreateRevision < created:
			p.writer = string(kv.Key)
		case !v.shared:
		case p.witness == nil, v.token != 0:
			p.witness = kv
		}
		if kv.CreateRevision == created {
			p.own = kv
		}
	}
	return p
}
