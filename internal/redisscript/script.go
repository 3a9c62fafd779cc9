// Package redisscript is the lock protocol on one Redis server, whatever the client library: the
// Lua scripts, the keys, and the Driver that runs them through a [Runner].
package redisscript

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
)

// Script is one Lua script, of one key.
type Script struct {
	Source string
	SHA    string // in hexadecimal, as EVALSHA takes it
}

//go:embed prelude.lua
var prelude string

//go:embed acquire.lua
var acquireSource string

//go:embed extend.lua
var extendSource string

//go:embed release.lua
var releaseSource string

//go:embed raise.lua
var raiseSource string

var (
	acquire = newScript(acquireSource)
	extend  = newScript(extendSource)
	release = newScript(releaseSource)
	raise   = newScript(raiseSource)
)

func newScript(source string) *Script {
	source = prelude + source
	sum := sha1.Sum([]byte(source))
	return &Script{Source: source, SHA: hex.EncodeToString(sum[:])}
}

var tagEscape = strings.NewReplacer("%", "%25", "}", "%7D")

// Key is the key of the lock called name. All of it is a hash tag, so that whatever else is kept of
// the lock can be put on the same slot of a Redis Cluster; a '}' in the name would end the tag early.
func Key(name string) string {
	return "{" + tagEscape.Replace(name) + "}"
}
