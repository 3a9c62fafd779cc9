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
	SHA    string // in hexadecimal, as EVALSHA takes it

	// Grants is set if the reply 1, or one that begins with 1, is a promise that replicas ought to know of.
	Grants bool
}

//go:embed prelude.lua
var prelude string

//go:embed queue.lua
var queue string

//go:embed acquire.lua
var acquireSource string

//go:embed extend.lua
var extendSource string

//go:embed release.lua
var releaseSource string

//go:embed raise.lua
var raiseSource string

var (
	acquire = newScript(true, prelude, queue, acquireSource)
	extend  = newScript(true, prelude, extendSource)
	release = newScript(false, prelude, queue, releaseSource)
	raise   = newScript(true, prelude, raiseSource)
)

func newScript(grants bool, parts ...string) *Script {
	source := strings.Join(parts, "")
	sum := sha1.Sum([]byte(source))
	return &Script{Source: source, SHA: hex.EncodeToString(sum[:]), Grants: grants}
}

var tagEscape = strings.NewReplacer("%", "%25", "}", "%7D")

// Key is the key of the lock called name. All of it is a hash tag, so that the queue and the channels of
// the lock are on the same slot of a Redis Cluster; a '}' in the name would end the tag early.
func Key(name string) string {
	return "{" + tagEscape.Replace(name) + "}"
}

// keysOf returns what the scripts take: the lock of a name, and its queue. Those that need the lock alone take it
// alone: while a slot moves a Redis Cluster answers TRYAGAIN for two keys of which one is not there. The others
// can then be given the first alone, too.
func keysOf(name string) []string {
	key := Key(name)
	return []string{key, key + ":queue"}
}
