// Package redisscript is the lock protocol on one Redis server, whatever the client library: the
// Lua scripts, the keys, and the Driver that runs them through a [Runner].
package redisscript

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
)

// Script is one Lua script, on the keys of one lock.
type Script struct {
	Source string
	SHA    any // a string, in hexadecimal, as an argument of EVALSHA

	// Takes is set if it matters whether the script has run when there is no reply.
	Takes bool

	// Grants is set if the reply 1, one that begins with 1, or a text, is a promise that replicas
	// ought to know of.
	Grants bool

	// Queue is set if the second key is that of the lock's queue, and the third that of its shares,
	// which the script finds by itself where they are not given.
	Queue bool

	args []string // as the script names them: `local owner, expires = unpack(ARGV)`
}

// mostArgs is how many arguments a script takes at most. With its three keys it has the ten that
// Redis takes of a user who has yet to give a password.
const mostArgs = 4

// What Go and Lua have to agree on is here, in reply.go, and in the first lines of the scripts.
// TestScripts_agreeWithGo compares them.
var (
	take       = newScript("take", anyTake)
	takeShared = newScript("take_shared", anyTake) // of an owner that has a ~ in it, see layout.lua
	propose    = newScript("propose", anyTake)     // as a node of Redlock
	anyTake    = Script{Takes: true, Grants: true, Queue: true, args: []string{
		"owner",
		"expires", // TTL + KEEP in ms
		"due",     // see due.arg
		"meta",    // '' of a share, which has it in its owner
	}}

	extend       = newScript("extend", Script{Grants: true, Queue: true, args: []string{"owner", "expires"}}) // the lock's key is enough
	extendShared = newScript("extend_shared", Script{Grants: true, Queue: true, args: []string{"owner", "expires"}})

	release       = newScript("release", anyRelease)
	releaseShared = newScript("release_shared", anyRelease)
	anyRelease    = Script{Queue: true, args: []string{
		"owner", // '>' before it: its claim alone
		"token", // 0: not known
		"sent",  // how often this release has been sent before
	}}

	downgrade = newScript("downgrade", Script{Queue: true, args: []string{"owner"}})
	raise     = newScript("raise", Script{Grants: true, args: []string{
		"owner",
		"wanted", // the token that is to be its own
		"tag",    // of the mark
	}})
	inspect = newScript("inspect", Script{Queue: true, args: []string{
		"last", // how far into the queue to look, as ZRANGE counts
	}})
	force = newScript("force", Script{Queue: true, args: []string{
		"owners", // IDs, a line feed between two; '': any
		"token",  // 0: any
	}})
	notify = newScript("notify", Script{Queue: true, args: []string{
		"owner",
		"process", // which is to be told: what the owners of its waiters begin with; '': it is not subscribed
	}})
	info = newScript("info", Script{args: []string{
		"section", // of INFO
	}})
)

// assembled has all scripts, each behind a separator and its name. It is made of what is in lua.
//
//go:generate go test . -run ^TestScripts_areAssembled$ -assemble
//go:embed scripts.lua
var assembled string

const separator = "---- "

func newScript(name string, s Script) *Script {
	_, rest, _ := strings.Cut(assembled, separator+name+"\n")
	s.Source, _, _ = strings.Cut(rest, separator)
	sum := sha1.Sum([]byte(s.Source))
	s.SHA = hex.EncodeToString(sum[:])
	return &s
}

var tagEscape = strings.NewReplacer("%", "%25", "}", "%7D")

// Key returns the key of the lock called name. All of it is a hash tag, so that the queue and the
// channels of the lock are on the same slot of a Redis Cluster; a '}' in the name would end the tag
// early.
func Key(name string) string { return keysOf(name)[0].(string) }

// keysOf returns what the scripts take: the lock of a name, its queue, and its shares. Those that
// need the lock alone take it alone: while a slot moves a Redis Cluster answers TRYAGAIN for
// several keys of which one is not there. The others can then be given the first alone, too. They
// are arguments from the start, so that no request has to make them such.
//
// The mark is no key of a script: a user may have no right to it, and behind a proxy it has no slot
// with the lock.
func keysOf(name string) [3]any {
	keys, _ := keysAnd(name, "", "", "")
	return keys
}

// Keys returns the keys of the lock called name.
func Keys(name string) (keys []string) {
	for _, key := range keysOf(name) {
		keys = append(keys, key.(string))
	}
	return keys
}

// keysAnd is keysOf, and the owner, which is the other three. All are parts of one piece of memory.
func keysAnd(name, prefix, place, random string) (keys [3]any, owner string) {
	const readers, queue = ":readers", ":queue"
	tag := tagEscape.Replace(name)
	lock := len("{"+"}") + len(tag)
	both := lock + len(readers)
	all := "{" + tag + "}" + readers + "{" + tag + "}" + queue + prefix + place + random
	rest := both + lock + len(queue)
	return [3]any{all[:lock], all[both:rest], all[:both]}, all[rest:]
}
