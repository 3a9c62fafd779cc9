package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/show"
	"github.com/go-locker/locker/cmd/locker/internal/watch"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/locktest"
)

// watching returns a screen of locks in memory that prints lines, and how to have it look n times.
func watching(t *testing.T, locks *locktest.Client, names ...string) (s *screen, look func(n int)) {
	s = &screen{
		Watcher: watch.New(locks.Client, time.Second, 3, names...), watchOptions: &watchOptions{interval: time.Second},
		title: "mem://", out: new(bytes.Buffer),
	}
	return s, func(n int) {
		for range n {
			_ = s.Look(t.Context())
			s.show()
			time.Sleep(s.interval)
		}
	}
}

func TestWatch_tellsAReleaseFromATakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t, locker.WithTTL(9*time.Second))
		s, look := watching(t, locks, "job")
		lock := func(who string, opts ...locker.MutexOption) (unlock func()) {
			m := locks.Mutex("job", append(opts, locker.WithMetadata(who))...)
			held := make(chan struct{})
			var err error
			go func() { err = m.Lock(t.Context()); close(held) }()
			synctest.Wait()
			return func() {
				<-held
				require.NoError(t, err)
				_ = m.Unlock(t.Context())
			}
		}
		look(2)
		a := lock("a")
		look(2)
		b := lock("b", locker.WithoutRenewal())
		look(5)
		a()
		look(4)
		assert.Regexp(t, `job +b +4s +6s`, s.table(), "who holds it, since when, for how long")
		c := lock("c")
		look(8)
		b()
		locks.Down()
		look(2)
		locks.Up()
		look(1)
		assert.Regexp(t, `job +c +\d+s +\d`, s.table())
		c()
		look(1)
		var told []string
		for line := range strings.Lines(s.out.(*bytes.Buffer).String()) {
			_, what, _ := strings.Cut(strings.TrimSpace(line), " job: ")
			told = append(told, tokenOf.ReplaceAllString(what, "token T"))
		}
		assert.Equal(t, []string{
			"nobody holds it, 0 waiting",
			"held by a, token T, 0 waiting",
			"1 waiting",
			"released by a, token T",
			"held by b, token T, 0 waiting",
			"1 waiting",
			"EXPIRED: b did not renew the hold, token T",
			"TAKEN OVER by c, token T, 0 waiting",
			`not known: locker: inspect "job": ` + locktest.ErrUnreachable.Error(),
			"released by c, token T",
		}, told)
		page := pageOf(t, s)
		assert.Equal(t, 1, strings.Count(page, `class="end"`), "one hold expired")
		assert.Equal(t, 3, strings.Count(page, "<path "), "three holds")
		assert.Equal(t, 2, strings.Count(page, `class="wait"`), "two waited")
	})
}

func TestWatch_listsWhatBeginsLikeThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		defer locks.HoldAsOther("orders/1")()
		defer locks.HoldAsOther("<script>")()
		s, look := watching(t, locks, "orders/*")
		look(1)
		assert.Contains(t, s.table(), "orders/1")
		later := locks.HoldAsOther("orders/2")
		look(11)
		assert.Contains(t, s.table(), "orders/2")
		assert.NotContains(t, s.table(), "script")
		later()
		look(1)
		assert.Contains(t, s.table(), "nobody")

		s, look = watching(t, locks, "*")
		look(1)
		assert.NotContains(t, pageOf(t, s), "<script", "it is text")
		for _, name := range []string{"a", "b", "c"} {
			locks.HoldAsOther(name) // until the end of the test
		}
		look(11)
		assert.Len(t, s.Locks, 3)
		assert.Contains(t, s.Note, "more than 3")
	})
}

var tokenOf = regexp.MustCompile(`token \d+`)

// pageOf returns the page, which is well-formed but for its head.
func pageOf(t *testing.T, s *screen) string {
	t.Helper()
	var page bytes.Buffer
	require.NoError(t, s.Page(s.title, time.Now()).Write(&page))
	_, body, _ := strings.Cut(page.String(), "</style>")
	d := xml.NewDecoder(strings.NewReader("<html>" + body))
	for {
		if _, err := d.Token(); err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
	}
	return page.String()
}

func TestScreenful_isNoLargerThanTheTerminal(t *testing.T) {
	assert.Equal(t, "a\nbéc…\n", show.Screenful("a\nbécde\n", 4, 3))
	assert.Equal(t, "a\n… and 3 more lines\n", show.Screenful("a\nb\nc\nd\n", 30, 3))
}

func TestWatch_onAServer(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	hold(t, s.URL(), "name")
	file := filepath.Join(t.TempDir(), "page.html")
	o := locked(t, "watch", "--for", "1s", "--interval", "200ms", "--html", file, s.URL())
	assert.Zero(t, o.code, o.stderr)
	assert.Regexp(t, `^[\d:]+ name: held by \S+, token \d+, 0 waiting\n$`, o.stdout)
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(page), "<path ")

	device := filepath.Join(t.TempDir(), "device")
	require.NoError(t, os.Symlink(os.DevNull, device))
	o = locked(t, "watch", "--for", "1s", "--html", device, "mem://x")
	assert.Equal(t, outcome.Usage, o.code, o.stderr)
	_, err = os.Readlink(device)
	assert.NoError(t, err, "it is not replaced")
}
