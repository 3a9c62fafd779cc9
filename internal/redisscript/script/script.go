// Package script is what one script does on a Redis server, and how it is run there: the Lua, its
// arguments and replies, the keys, and one round trip of a client library.
package script

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
)

// Script is one Lua script, on the keys of one lock: one atomic step on the server.
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
}

// MostArgs is how many arguments a script takes at most; lua/lib/layout.lua says what they are. With
// its three keys it has the ten that Redis takes of a user who has yet to give a password.
const MostArgs = 4

// The scripts. What Go and Lua have to agree on beside the arguments is in reply.go.
// TestScripts_agreeWithGo compares it.
var (
	anyTake    = Script{Takes: true, Grants: true, Queue: true}
	Take       = newScript("take", anyTake)
	TakeShared = newScript("take_shared", anyTake) // of an owner that has a ~ in it
	Propose    = newScript("propose", anyTake)     // as a node of Redlock

	Extend       = newScript("extend", Script{Grants: true, Queue: true}) // the lock key is enough
	ExtendShared = newScript("extend_shared", Script{Grants: true, Queue: true})
	Release      = newScript("release", Script{Queue: true})
	Downgrade    = newScript("downgrade", Script{Queue: true})
	Raise        = newScript("raise", Script{Grants: true})
	Inspect      = newScript("inspect", Script{Queue: true})
	Force        = newScript("force", Script{Queue: true})
	Notify       = newScript("notify", Script{Queue: true})
	Info         = newScript("info", Script{})
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
