package memory

import (
	"cmp"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/fuzzurl"
)

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, "mem", open, "orders", "", "/", "h:1", "h/x", "h?size=3")
}

// Whatever two names and prefixes of two Clients are: their locks are one if both are the same, and
// no name that the contract allows is refused.
func FuzzNames(f *testing.F) {
	for _, names := range [][2]string{{"a", "b"}, {"a", "a"}, {"a:b", "b"}, {"b", "a:b"}, {" ", "\x00"}, {"/", "//"}, {"é", "e\u0301"}, {"", "a"}, {"\xff", "a"}} {
		f.Add("p", names[0], "p", names[1])
		f.Add("p", names[0], "q", names[1])
	}
	f.Add("p:q", "a", "p", "q:a")
	f.Add("p/q", "a", "p", "q/a")
	f.Add("", "a", "locker", "a")
	f.Add("p%3Aq", "a", "p:q", "a")
	f.Add("p", "b:c", "p:b", "c")
	f.Add("p%", "3Ab:c", "p:b", "c")
	f.Add("p:", "b", "p", ":b")
	f.Add(":", ":", "%3A", ":")
	f.Fuzz(func(t *testing.T, prefixA, a, prefixB, b string) {
		d := NewDriver(InSpace(t.Name()))
		var held [2]*locker.Hold
		for i, of := range [][2]string{{prefixA, a}, {prefixB, b}} {
			c, err := locker.New(d, locker.WithPrefix(of[0]), locker.WithoutRenewal())
			if err != nil {
				return // a prefix that is refused
			}
			t.Cleanup(func() { _ = c.Close() })
			held[i], err = c.Mutex(of[1]).TryAcquire(t.Context())
			switch legal := of[1] != "" && utf8.ValidString(of[1]); {
			case !legal && err == nil:
				t.Errorf("%q is taken for a name", of[1])
			case legal && i == 0 && err != nil:
				t.Errorf("%q: %v", of, err)
			case legal && i == 1 && held[0] != nil && errors.Is(err, locker.ErrHeld) != (cmp.Or(prefixA, "locker") == cmp.Or(prefixB, "locker") && a == b):
				t.Errorf("%q beside %q: %v", of, []string{prefixA, a}, err)
			}
		}
	})
}
