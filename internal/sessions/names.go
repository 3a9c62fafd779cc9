package sessions

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

// OwnerLen is the length of an owner.
const OwnerLen = 32

// NewOwner returns the owner of a contender: 128 random bits, in hexadecimal digits.
func NewOwner() string {
	var owner [OwnerLen / 2]byte
	_, _ = rand.Read(owner[:]) // never fails
	return hex.EncodeToString(owner[:])
}

// IsOwner reports whether NewOwner may have returned s.
func IsOwner(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == OwnerLen
}

// Split splits the name of a lock at the colon behind its prefix, which has none.
func Split(qualified string) (prefix, name string) {
	prefix, name, ok := strings.Cut(qualified, ":")
	if !ok {
		return "", qualified
	}
	return prefix, name
}

const (
	// LongName is the length of an escaped name above which a hash stands for the name.
	LongName = 512
	// HashMark is what such a hash begins with, and no escaped name.
	HashMark = "%sha256-"
)

// Shorten returns what stands for a name that is escaped so.
func Shorten(name, escaped string) string {
	if len(escaped) <= LongName {
		return escaped
	}
	sum := sha256.Sum256([]byte(name))
	return HashMark + hex.EncodeToString(sum[:])
}

// Unescape returns the name that escape escapes so, if there is one, with percent signs as in URLs.
func Unescape(escaped string, escape func(string) string) (name string, ok bool) {
	name, err := url.PathUnescape(escaped)
	return name, err == nil && name != "" && escape(name) == escaped
}
