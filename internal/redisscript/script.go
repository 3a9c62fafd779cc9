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

	// Grants is set if the reply 1, one that begins with 1, or a text, is a promise that replicas ought to know of.
	Grants bool

	// Queue is set if the second key is that of the lock's queue, which the script finds by itself where it is not given.
	Queue bool
}

//go:embed prelude.lua
var prelude string

//go:embed clock.lua
var clockSource string

//go:embed queue.lua
var queue string

//go:embed acquire_free.lua
var acquireFree string

//go:embed acquire.lua
var acquireSource string

//go:embed extend.lua
var extendSource string

//go:embed release_free.lua
var releaseFree string

//go:embed release.lua
var releaseSource string

//go:embed raise.lua
var raiseSource string

//go:embed inspect.lua
var inspectSource string

//go:embed memory.lua
var memorySource string

var (
	acquire = newScript(Script{Takes: true, Grants: true, Queue: true},
		clockSource, acquireFree, queue, acquireSource)
	extend  = newScript(Script{Grants: true}, extendSource)
	release = newScript(Script{Queue: true}, releaseFree, queue, releaseSource)
	raise   = newScript(Script{Grants: true}, clockSource, raiseSource)
	inspect = newScript(Script{Queue: true}, inspectSource)
	memory  = newScript(Script{}, memorySource)
)

func newScript(s Script, parts ...string) *Script {
	s.Source = prelude + strings.Join(parts, "")
	sum := sha1.Sum([]byte(s.Source))
	s.SHA = hex.EncodeToString(sum[:])
	return &s
}

var tagEscape = strings.NewReplacer("%", "%25", "}", "%7D")

// Key is the key of the lock called name. All of it is a hash tag, so that the queue and the channels of
// the lock are on the same slot of a Redis Cluster; a '}' in the name would end the tag early.
func Key(name string) string {
	return keysOf(name)[0].(string)
}

// keysOf returns what the scripts take: the lock of a name, and its queue. Those that need the lock alone take it
// alone: while a slot moves a Redis Cluster answers TRYAGAIN for two keys of which one is not there. The others
// can then be given the first alone, too. They are arguments from the start, so that no request has to make them such.
func keysOf(name string) [2]any {
	keys, _ := keysAnd(name, "", "")
	return keys
}

// keysAnd is keysOf, and an owner. All are parts of one piece of memory.
func keysAnd(name, prefix, random string) (keys [2]any, owner string) {
	const suffix = ":queue"
	tag := tagEscape.Replace(name)
	all := "{" + tag + "}" + suffix + prefix + random
	lock := len("{"+"}") + len(tag)
	queue := lock + len(suffix)
	return [2]any{all[:lock], all[:queue]}, all[queue:]
}
