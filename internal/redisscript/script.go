// Package redisscript is the lock protocol on one Redis server, whatever the client library: the
// Lua scripts, the keys, and the Driver that runs them through a [Runner].
package redisscript

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

// Script is one Lua script, on the keys of one lock.
type Script struct {
	Source string
	SHA    any // a string, in hexadecimal, as an argument of EVALSHA

	// Takes is set if it matters whether the script has run when there is no reply.
	Takes bool

	// Grants is set if the reply 1, one that begins with 1, or a text, is a promise that replicas ought to know of.
	Grants bool

	// Queue is set if the second key is that of the lock's queue, and the third that of its shares,
	// which the script finds by itself where they are not given.
	Queue bool

	args []string // as the script names them: `local owner, expires = unpack(ARGV)`
}

// mostArgs is how many arguments a script takes at most. With its three keys it has the ten that
// Redis takes of a user who has yet to give a password.
const mostArgs = 4

//go:embed *.lua
var sources embed.FS

// What Go and Lua have to agree on is here, in reply.go, and in the first lines of the scripts. TestScripts_agreeWithGo compares them.
var (
	taking = Script{Takes: true, Grants: true, Queue: true, args: []string{
		"owner",
		"expires", // TTL + KEEP in ms
		"due",     // see due.arg
		"meta",
	}}
	acquire = newScript(taking, "clock", "take", "acquire_free", "mark", "queue", "acquire", "grant")
	share   = newScript(taking, "clock", "take", "mark", "queue", "acquire", "share")                    // of an owner that has a ~ in it, see queue.lua
	extend  = newScript(Script{Grants: true, Queue: true, args: []string{"owner", "expires"}}, "extend") // of a hold the lock's key is enough
	release = newScript(Script{Queue: true, args: []string{
		"owner", // '>' before it: its claim alone
		"token", // 0: not known
		"sent",  // how often this release has been sent before
	}}, "release_free", "queue", "end_share", "release")
	downgrade = newScript(Script{Queue: true, args: []string{"owner"}}, "queue", "downgrade")
	raise     = newScript(Script{Grants: true, args: []string{
		"owner",
		"wanted", // the token that is to be its own
		"tag",    // of the mark
	}}, "clock", "mark", "raise")
	inspect = newScript(Script{Queue: true, args: []string{
		"last", // how far into the queue to look, as ZRANGE counts
	}}, "inspect")
	force = newScript(Script{Queue: true, args: []string{
		"owners", // IDs, a line feed between two; '': any
		"token",  // 0: any
	}}, "queue", "end_share", "force")
	info = newScript(Script{args: []string{
		"section", // of INFO
	}}, "clock", "info")
)

func newScript(s Script, parts ...string) *Script {
	s.Source = sourceOf("prelude")
	for _, name := range parts {
		s.Source += sourceOf(name)
	}
	sum := sha1.Sum([]byte(s.Source))
	s.SHA = hex.EncodeToString(sum[:])
	return &s
}

func sourceOf(name string) string {
	source, err := sources.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(source)
}

var tagEscape = strings.NewReplacer("%", "%25", "}", "%7D")

// Key returns the key of the lock called name. All of it is a hash tag, so that the queue and the channels of
// the lock are on the same slot of a Redis Cluster; a '}' in the name would end the tag early.
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
