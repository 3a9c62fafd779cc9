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
