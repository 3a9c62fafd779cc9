package etcd

import (
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/internal/sessions"
)

// A lock is a folder, and each contender a key there: the owner, 32 hexadecimal digits, with an r
// before them if it wants a share. So the keys of writers come before those of readers. The folder
// is the prefix as it is, a colon, and the name, in which slashes, percent signs and control
// characters are escaped. So no folder is within another, and names stay readable.
//
//	locker:orders%2F42/0f…    in the queue, the oldest of which is the holder
//	locker:orders%2F42/r0f…   a share
//	locker:orders%2F42%/dead/0f…  a tombstone: this owner's key must not be put
//	locker:orders%2F42%/share     the hint: a share that is likely to be there
//	locker:%/session/1f…          the anchor of a session, see session.Start
const (
	readerMark = "r"
	deadMark   = "%/dead/" // no name has a '%' without two digits after it
	hintMark   = "%/share"
	anchorMark = "%/session/"
)

// place has the keys of one contender.
type place struct{ folder, key, tombstone, owner string }

// hint returns the key of the hint for shares.
func (p *place) hint() string { return strings.TrimSuffix(p.folder, "/") + hintMark }

// newPlace returns the place of a contender by its ID: the owner, after readerMark if it wants a
// share.
func newPlace(name, id string) place {
	folder := folderOf(name)
	base := strings.TrimSuffix(folder, "/")
	return place{folder: folder, key: folder + id, tombstone: base + deadMark + id, owner: strings.TrimPrefix(id, readerMark)}
}

// alive is true unless this contender has a tombstone.
func (p *place) alive() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(p.tombstone), "=", 0)
}

func (p *place) absent() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(p.key), "=", 0)
}

// empty is true if no key stands in the queue.
func (p *place) empty() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(p.folder), "=", 0).WithPrefix()
}

// noWriter is true if no key of a writer stands in the queue, and nothing of others that comes
// before shares.
func (p *place) noWriter() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(p.folder), "=", 0).WithRange(p.folder + readerMark)
}

// oldest reads the first key of the queue.
func (p *place) oldest() clientv3.Op {
	return clientv3.OpGet(p.folder, clientv3.WithFirstCreate()...)
}

func (p *place) own() clientv3.Op { return clientv3.OpGet(p.key, clientv3.WithKeysOnly()) }

// folderOf returns the folder of a name that begins, as the core's do, with a prefix without a
// colon, and a colon.
func folderOf(qualified string) string {
	prefix, name := sessions.Split(qualified)
	return prefix + ":" + escape(name) + "/"
}

// escape returns what stands for a name.
func escape(name string) string { return sessions.Shorten(name, escapeAll(name)) }

// escapeAll escapes each byte by itself: what begins a name begins, escaped, the name escaped.
func escapeAll(name string) string {
	escaped := func(r rune) bool { return r == '/' || r == '%' || r < ' ' || r == 0x7f }
	if !strings.ContainsFunc(name, escaped) {
		return name
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case escaped(rune(c)):
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// isContender reports whether kv, a key in folder, is a contender's: others may have put theirs
// there.
func isContender(kv *mvccpb.KeyValue, folder string) bool {
	id, ok := strings.CutPrefix(string(kv.Key), folder)
	return ok && kv.Lease != 0 && sessions.IsOwner(strings.TrimPrefix(id, readerMark))
}

// The value of a key is the metadata of its contender, a writer. That of a share is shareMark, its
// token when that is settled, a zero byte, and the metadata.
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
