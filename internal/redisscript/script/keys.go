package script

import (
	"strings"
	"time"
)

// The keys of a lock, and its owners, as lua/lib/layout.lua describes them.

// Keep is KEEP of the scripts: how long the key of a lock outlives the lock.
const Keep = time.Minute

// Expiry returns after how many milliseconds the key of a lock of that TTL expires. Scripts are sent
// this sum, so that the server need not add it and print it.
func Expiry(ttl time.Duration) int64 { return ttl.Milliseconds() + Keep.Milliseconds() }

// What stands in an owner, or before it.
const (
	Subscribes        = 'p'  // in front of a waiter
	SubscribesSharded = 's'  // the same, in a Redis Cluster
	Polls             = '-'  // the same, without a subscription
	ShareMark         = "~"  // in the owner of a share
	MetadataMark      = "\n" // before the metadata, in the owner of a waiter or a share
	ClaimMark         = ">"  // before the owner that the lock, or a share, is claimed for
	SharesMark        = "+"  // the owner of a lock that is shared
)

var (
	tagEscape   = strings.NewReplacer("%", "%25", "}", "%7D")
	tagUnescape = strings.NewReplacer("%25", "%", "%7D", "}")
	globEscape  = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
)

// Key returns the key of the lock called name. All of it is a hash tag, so that the queue and the
// channels of the lock are on the same slot of a Redis Cluster; a '}' in the name would end the tag
// early.
func Key(name string) string { return KeysOf(name)[0].(string) }

// KeysOf returns what the scripts take: the lock of a name, its queue, and its shares. Those that
// need the lock alone take it alone: while a slot moves a Redis Cluster answers TRYAGAIN for
// several keys of which one is not there. The others can then be given the first alone, too. They
// are arguments from the start, so that no request has to make them such.
//
// The mark is no key of a script: a user may have no right to it, and behind a proxy it has no slot
// with the lock.
func KeysOf(name string) [3]any {
	keys, _ := KeysAnd(name, "", "", "")
	return keys
}

// KeysAnd is KeysOf, and the owner, which is the other three. All are parts of one piece of memory.
func KeysAnd(name, prefix, place, random string) (keys [3]any, owner string) {
	const readers, queue = ":readers", ":queue"
	tag := tagEscape.Replace(name)
	lock := len("{"+"}") + len(tag)
	both := lock + len(readers)
	all := "{" + tag + "}" + readers + "{" + tag + "}" + queue + prefix + place + random
	rest := both + lock + len(queue)
	return [3]any{all[:lock], all[both:rest], all[:both]}, all[rest:]
}

// Matching returns the pattern of the keys of locks whose names begin with prefix. A queue's key
// does not match.
func Matching(prefix string) string {
	return "{" + globEscape.Replace(tagEscape.Replace(prefix)) + "*}"
}

// NameOf returns the name of the lock that has a key, if it is one's: a mark is none.
func NameOf(key string) (name string, ok bool) {
	inner, ok := strings.CutPrefix(key, "{")
	if ok {
		inner, ok = strings.CutSuffix(inner, "}")
	}
	name = tagUnescape.Replace(inner)
	return name, ok && Key(name) == key
}
