package redisscript

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
)

// steps is a server whose SCAN takes as many steps as there are keys, of which those of held are held.
type steps struct {
	fakeRunner
	all    []Scan
	served int
}

func (s *steps) Scans(context.Context) ([]Scan, error) { return s.all, nil }

func scanOf(s *steps, keys ...[]string) Scan {
	return func(_ context.Context, cursor uint64, match string) ([]string, uint64, error) {
		s.served++
		if match != "{locker:*}" {
			return nil, 0, errors.New("another pattern")
		}
		next := cursor + 1
		if int(next) == len(keys) {
			next = 0
		}
		return keys[cursor], next, nil
	}
}

// A page is a step, and the last one is that of the last server.
func TestList_goesThroughAllServers(t *testing.T) {
	s := &steps{}
	s.answer = func(s *script.Script, _ []any) (any, error) {
		assert.Same(t, script.Inspect, s)
		return []any{"a", "", int64(1), "7", int64(-1), []any{}, []any{}}, nil
	}
	s.all = []Scan{
		scanOf(s, []string{"{locker:a}", "{locker:a}", "{locker:%mark}"}, nil, []string{"{locker:b}"}),
		scanOf(s, []string{"{locker:c}"}),
		scanOf(s, nil),
	}
	next := NewDriver(s).List("locker:")
	var pages [][]string
	for {
		page, err := next(t.Context())
		require.NoError(t, err)
		pages = append(pages, page.Names)
		if page.Last {
			break
		}
	}
	assert.Equal(t, [][]string{{"locker:a"}, nil, {"locker:b"}, {"locker:c"}, nil}, pages)
	assert.Equal(t, 5, s.served)
}

func TestList_ofOtherReplies(t *testing.T) {
	for name, c := range map[string]struct {
		reply any
		err   error
		want  string // of the error; empty: none
	}{
		"a key of another type": {nil, errors.New("WRONGTYPE Operation against a key holding the wrong kind of value"), ""},
		"no right":              {nil, errors.New("NOPERM this user has no permissions"), "NOPERM"},
		"nonsense":              {int64(7), nil, "unexpected reply to the inspect script"},
		"released":              {[]any{"", "", int64(1), "7", int64(-1), []any{}, []any{}}, nil, ""},
		"expired":               {[]any{"a", "", int64(0), "7", int64(-1), []any{}, []any{}}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &steps{}
			s.answer = func(*script.Script, []any) (any, error) { return c.reply, c.err }
			s.all = []Scan{scanOf(s, []string{"{locker:a}"})}
			page, err := NewDriver(s).List("locker:")(t.Context())
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, driver.Page{Last: true}, page)
		})
	}
}
