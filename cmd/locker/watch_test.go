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
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/locktest"
)

// watching returns a watcher of a lock in memory that prints lines, and how to have it look n
// times.
func watching(t *testing.T, locks *locktest.Client, names ...string) (w *watcher, look func(n int)) {
	w = &watcher{
		watchOptions: &watchOptions{interval: time.Second, most: 3}, client: locks.Client, title: "mem://", names: names,
		history: history{began: time.Now(), interval: time.Second}, out: new(bytes.Buffer),
	}
	return w, func(n int) {
		for range n {
			_ = w.look(t.Context())
			w.show()
			time.Sleep(w.interval)
		}
	}
}

func TestWatch_tellsAReleaseFromATakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t, locker.WithTTL(9*time.Second))
		w, look := watching(t, locks, "job")
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
		assert.Regexp(t, `job +b +4s +6s`, w.table(), "who holds it, since when, for how long")
		c := lock("c")
		look(8)
		b()
		locks.Down()
		look(2)
		locks.Up()
		look(1)
		assert.Regexp(t, `job +c +\d+s +\d`, w.table())
		c()
		look(1)
		var told []string
		for line := range strings.Lines(w.out.(*bytes.Buffer).String()) {
			_, what, _ := strings.Cut(strings.TrimSpace(line), " job: ")
			told = append(told, tokenOf.ReplaceAllString(what, "token T"))
		}
		assert.Equal(t, []string{
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
		page := pageOf(t, w)
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
		w, look := watching(t, locks, "orders/*")
		look(1)
		assert.Contains(t, w.table(), "orders/1")
		later := locks.HoldAsOther("orders/2")
		look(11)
		assert.Contains(t, w.table(), "orders/2")
		assert.NotContains(t, w.table(), "script")
		later()
		look(1)
		assert.Contains(t, w.table(), "nobody")

		w, look = watching(t, locks, "*")
		look(1)
		assert.NotContains(t, pageOf(t, w), "<script", "it is text")
		for _, name := range []string{"a", "b", "c"} {
			locks.HoldAsOther(name) // until the end of the test
		}
		look(11)
		assert.Len(t, w.history.locks, 3)
		assert.Contains(t, w.note, "more than 3")
	})
}

var tokenOf = regexp.MustCompile(`token \d+`)

// pageOf returns the page, which is well-formed but for its head.
func pageOf(t *testing.T, w *watcher) string {
	t.Helper()
	var page bytes.Buffer
	require.NoError(t, w.history.page(&page, w.title, time.Now()))
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
	s.Kill()
	assert.Equal(t, exitUnreachable, locked(t, "watch", s.URL()).code)
	for _, args := range [][]string{{"watch"}, {"watch", "--interval", "1ms", "mem://x"}, {"watch", "--html", "/no/such/folder/x", "--for", "1s", "mem://x"}} {
		assert.Equal(t, exitUsage, locked(t, args...).code, args)
	}
}
