package filefence

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-locker/locker/fence"
)

// Whatever two resources are called: what the Dir keeps of them is in its directory, of each by itself.
func FuzzDir(f *testing.F) {
	for _, names := range [][2]string{
		{resource, "/orders/42/"},
		{"", " "},
		{"../other", "other"},
		{"/etc/passwd", "\\etc\\passwd"},
		{".", ".."},
		{"a", "A"},
		{"é", "e\u0301"},
		{"a\x00b", "a"},
		{"\xff", "\xfe"},
		{"a.fence", "a"},
		{"a.fence.lock", "a"},
		{"CON", "nul"},
		{strings.Repeat("x", 5000), strings.Repeat("x", 5001)},
	} {
		f.Add(names[0], names[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		outside := t.TempDir()
		dir := filepath.Join(outside, "fences")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := Dir(dir).Write(t.Context(), a, 34, nothing); err != nil {
			t.Fatalf("%q: %v", a, err)
		}
		if err := Dir(dir).Write(t.Context(), b, 33, nothing); errors.Is(err, fence.ErrStale) != (a == b) {
			t.Errorf("33 after 34, of %q after %q: %v", b, a, err)
		}
		const each = 3
		files, _ := filepath.Glob(filepath.Join(outside, "*", "*"))
		if all, _ := filepath.Glob(filepath.Join(outside, "*")); len(all) != 1 || a == b && len(files) != each || a != b && len(files) != 2*each {
			t.Errorf("%q and %q leave %q and %q", a, b, all, files)
		}
	})
}

// Whatever has become of the file of the token: it is a token on a line, or an error.
func FuzzToken(f *testing.F) {
	for _, content := range []string{
		"34\n", "34\r\n", "34", "", "\n", "0\n", "034\n", "+34\n", "-34\n", " 34\n", "34 \n", "3 4\n", "34\n\n", "34\n35\n", "34\r\r\n", "0x22\n", "1_0\n",
		"18446744073709551615\n", "18446744073709551615\r\n", "18446744073709551616\n", "00000000000000000000034\n", "\x0034\n", "３４\n",
	} {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content string) {
		c := file{filepath.Join(t.TempDir(), "file"), resource}
		if err := os.WriteFile(c.token(), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		newest, err := c.newest()
		digits := strings.TrimLeft(strings.TrimSuffix(strings.TrimSuffix(content, "\n"), "\r"), "0")
		switch {
		case err == nil && (!strings.HasSuffix(content, "\n") || digits != strings.TrimLeft(strconv.FormatUint(newest, 10), "0")):
			t.Errorf("%q is taken for %d", content, newest)
		case err != nil && !errors.Is(err, fence.ErrUnknown):
			t.Errorf("%q: %v", content, err)
		}
	})
}
