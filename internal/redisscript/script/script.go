// Package script is what one script does on a Redis server, and how it is run there: the Lua, its
// arguments and replies, the keys, and one round trip of a client library.
package script

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
)

// Script is one Lua script, on the keys of one lock.
//
// Each is one atomic step on the server. The comment at its head, in lua, says which rows of the
// protocol it implements; lua/lib/layout.lua says what it finds there.
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

// MostArgs is how many arguments a script takes at most. With its three keys it has the ten that
// Redis takes of a user who has yet to give a password.
const MostArgs = 4

// The scripts. What Go and Lua have to agree on is here, in reply.go, and in the first lines of the
// scripts. TestScripts_agreeWithGo compares them.
var (
	Take       = newScript("take", anyTake)
	TakeShared = newScript("take_shared", anyTake) // of an owner that has a ~ in it, see layout.lua
	Propose    = newScript("propose", anyTake)     // as a node of Redlock
	anyTake    = Script{Takes: true, Grants: true, Queue: true, args: []string{
		"owner",
		"expires", // TTL + KEEP in ms
		"due",     // see Due.Arg
		"meta",    // '' of a share, which has it in its owner
	}}

	Extend       = newScript("extend", Script{Grants: true, Queue: true, args: []string{"owner", "expires"}}) // the lock's key is enough
	ExtendShared = newScript("extend_shared", Script{Grants: true, Queue: true, args: []string{"owner", "expires"}})

	Release       = newScript("release", anyRelease)
	ReleaseShared = newScript("release_shared", anyRelease)
	anyRelease    = Script{Queue: true, args: []string{
		"owner", // '>' before it: its claim alone
		"token", // 0: not known
		"sent",  // how often this release has been sent before
	}}

	Downgrade = newScript("downgrade", Script{Queue: true, args: []string{"owner"}})
	Raise     = newScript("raise", Script{Grants: true, args: []string{
		"owner",
		"wanted", // the token that is to be its own
		"tag",    // of the mark
	}})
	Inspect = newScript("inspect", Script{Queue: true, args: []string{
		"last", // how far into the queue to look, as ZRANGE counts
	}})
	Force = newScript("force", Script{Queue: true, args: []string{
		"owners", // IDs, a line feed between two; '': any
		"token",  // 0: any
	}})
	Notify = newScript("notify", Script{Queue: true, args: []string{
		"owner",
		"process", // which is to be told: what the owners of its waiters begin with; '': it is not subscribed
	}})
	Info = newScript("info", Script{args: []string{
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

// MostAhead is MOST of raise.lua, in µs.
const MostAhead = 12 * 3600 * 1_000_000
