package script

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

// calls returns how often the server has run a command, also in scripts.
func (s *atServer) calls(command string) (n int) {
	s.t.Helper()
	info, err := s.rdb.Info(s.t.Context(), "commandstats").Result()
	require.NoError(s.t, err)
	if _, rest, ran := strings.Cut(info, "cmdstat_"+command+":calls="); ran {
		_, err = fmt.Sscanf(rest, "%d,", &n)
		require.NoError(s.t, err)
	}
	return n
}

// A hand-over reads the lock alone, as the take of a free one does, while the mark covers it.
func TestMark_isNotReadForAHandOverThatItCovers(t *testing.T) {
	t.Parallel()
	covered := &Mark{}
	covered.covered.Store(9e15)
	for _, c := range []struct {
		name  string
		mark  *Mark
		ahead int64 // of the clock, the last token
		reads int   // of the lock, and of the mark
	}{
		{"covered", covered, 0, 1},
		{"covered, and the last token is ahead by 20 s", covered, 20e6, 1},
		{"the cover has ended", &Mark{}, 0, 2},
		{"the clock may not pass the token before that is forgotten", covered, 31e6, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := atServerOf(t, testserver.Redis(t))
			h := s.ask("holder", ttl, 0)
			require.EqualValues(t, Granted, h.Status)
			last := h.Token
			if c.ahead > 0 {
				last = s.serverTime() + c.ahead
				require.EqualValues(t, 1, s.run(Raise, []any{"holder", last, ""}))
			}
			require.EqualValues(t, Held, s.ask("-P/waiter", ttl, 0).Status)
			require.EqualValues(t, 1, s.release("holder", last, 0))
			require.Equal(t, ">-P/waiter", s.owner())
			before := s.calls("hmget")
			a, err := ParseAnswer(s.run(Take, []any{"-P/waiter", Expiry(ttl), Due{9e15, 0}.Arg(c.mark, 0), ""}), 0)
			require.NoError(t, err)
			require.EqualValues(t, Granted, a.Status)
			assert.Greater(t, a.Token, last)
			assert.Equal(t, c.reads, s.calls("hmget")-before)
			assert.Equal(t, c.reads > 1, a.covered > 0, "only what was read is told")
		})
	}
}

// After a failover, or behind a proxy, a Client hears of the marks of several servers.
func TestMark_whatThatOfAnotherServerCoversDoesNotCount(t *testing.T) {
	const now int64 = 1_700_000_000_000_000
	m := &Mark{}
	m.OnGrant(Answer{Now: now, covered: now + coverMicros})
	m.OnGrant(Answer{Now: now + coverMicros/2})
	assert.Equal(t, now+coverMicros, m.covered.Load(), "by the same clock")
	m.OnGrant(Answer{Now: now - coverMicros})
	assert.Zero(t, m.covered.Load(), "by a clock that is behind, the mark of which is not known")
}
