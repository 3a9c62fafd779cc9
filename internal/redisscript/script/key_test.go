package script

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// tag is the part of a key that Redis Cluster hashes: between the first '{' and the next '}', if there
// is anything between them, else all of it.
func tag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return key
	}
	inner, _, ok := strings.Cut(rest, "}")
	if !ok || inner == "" {
		return key
	}
	return inner
}

var names = []string{
	"a", "b", "A", " ", "  ", "{", "}", "{}", "}{", "{{", "}}", "{a}", "{a}b", "a}", "a{", "%", "%%", "%7D", "%7d", "%257D",
	"%25", "%25%7D", "%}", "}%", "\x00", "a\x00", "\n", "\r\n", "/", "//", ":", "locker:a", "locker%3Aa", "é", "e\u0301",
	strings.Repeat("}", 4096), strings.Repeat("}", 4095), strings.Repeat("x", 4096),
}

func FuzzKey(f *testing.F) {
	for i, name := range names {
		f.Add(name, names[(i+1)%len(names)])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" || !utf8.ValidString(a) || !utf8.ValidString(b) {
			return // the core refuses them
		}
		if (a == b) != (Key(a) == Key(b)) {
			t.Errorf("names %q and %q have the keys %q and %q", a, b, Key(a), Key(b))
		}
		key := Key(a)
		if want := key[1 : len(key)-1]; tag(key) != want {
			t.Errorf("the hash tag of %q is %q, and not all of it", key, tag(key))
		}
		if tag(key+b) != tag(key) || tag(key+":"+b+"}") != tag(key) {
			t.Errorf("keys that begin with %q are not all on one slot", key)
		}
		if back := unescape(tag(key)); back != a {
			t.Errorf("%q can be read back from %q as %q", a, key, back)
		}
	})
}

// unescape is the inverse of what Key does to a name; that there is one is why Key is injective.
func unescape(s string) string {
	return strings.NewReplacer("%7D", "}", "%25", "%").Replace(s)
}

func TestKeep_isThatOfTheScripts(t *testing.T) {
	if want := fmt.Sprintf("local MOST = %d -- µs", MostAhead); !strings.Contains(partOf("raise"), want) {
		t.Errorf("raise.lua does not have %q", want)
	}
	if want := fmt.Sprintf("local KEEP = %d -- ms", Keep.Milliseconds()); !strings.Contains(partOf("lib/layout"), want) {
		t.Errorf("layout.lua does not have %q", want)
	}
}

func TestNameOf_isOfTheKeysOfLocksAlone(t *testing.T) {
	for _, name := range []string{"locker:a", "locker:", "locker:}", "locker:{a}", "locker:%7D", "locker:%", "a:b\x00\n", "locker:%mark"} {
		got, ok := NameOf(Key(name))
		assert.True(t, ok, "%q", name)
		assert.Equal(t, name, got)
	}
	for _, key := range []string{MarkKey("locker:a", false), MarkKey("locker:a", true), "{locker:a}:queue", "locker:a", "{locker:a", "locker:a}", "{locker:a}b}", "", "{", "}"} {
		name, ok := NameOf(key)
		assert.False(t, ok, "%q is the key of %q", key, name)
	}
}
