package history

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script writes a history by hand: times are milliseconds.
type script []Event

func call(client int, op string, from, to int64, returned ...ErrKind) Event {
	e := Event{Client: client, Op: op, Call: from * 1e6, Return: to * 1e6}
	if len(returned) > 0 {
		e.Err = returned[0]
	}
	return e
}

func sample(client int, from, to int64, token uint64) Event {
	return Event{Client: client, Op: OpToken, Call: from * 1e6, Return: to * 1e6, Token: token}
}

// played is the history of clients 0 to 2 of one name, and client 3 of another; 2 renews.
func (s script) played(d Demand) *History {
	h := &History{Demand: d, Events: s}
	for i, name := range []string{"x", "x", "x", "y"} {
		h.Clients = append(h.Clients, Client{Who: fmt.Sprint(i), Name: name, TTL: 300 * time.Millisecond, Renews: i == 2})
	}
	return h
}

// Each sentence of the contract that a history can break, kept and broken.
func TestModel(t *testing.T) {
	for _, c := range []struct {
		what   string
		demand Demand
		legal  bool
		script script
	}{
		{"one after the other", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30),
			call(1, OpLock, 5, 35), sample(1, 36, 37, 6), call(1, OpUnlock, 40, 50),
		}},
		{"two at once", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 100, 110),
			call(1, OpLock, 20, 30), sample(1, 31, 32, 6), call(1, OpUnlock, 40, 50),
		}},
		{"two at once, of two names", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 100, 110),
			call(3, OpLock, 20, 30), sample(3, 31, 32, 5), call(3, OpUnlock, 40, 50),
		}},
		{"the next one gets it while Unlock is under way", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 100),
			call(1, OpLock, 30, 40), sample(1, 41, 42, 6), call(1, OpUnlock, 50, 60),
		}},
		{"the next one gets it before Unlock is called", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 50, 100),
			call(1, OpLock, 30, 40), sample(1, 41, 42, 6), call(1, OpUnlock, 60, 70),
		}},
		{"two shares at once, and a writer after them", Exclusive, true, script{
			call(0, OpRLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 100, 110),
			call(1, OpTryRLock, 20, 30), sample(1, 31, 32, 5), call(1, OpUnlock, 40, 50),
			call(1, OpLock, 60, 120), sample(1, 121, 122, 6), call(1, OpUnlock, 130, 140),
		}},
		{"shares of one phase, one after the other", Exclusive, true, script{
			call(0, OpRLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30),
			call(1, OpRLock, 40, 50), sample(1, 51, 52, 5), call(1, OpUnlock, 60, 70),
		}},
		{"a share and a writer at once", Exclusive, false, script{
			call(0, OpRLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 100, 110),
			call(1, OpLock, 20, 30), sample(1, 31, 32, 6), call(1, OpUnlock, 40, 50),
		}},
		{"a writer and a share at once", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 100, 110),
			call(1, OpRLock, 20, 30), sample(1, 31, 32, 6), call(1, OpUnlock, 40, 50),
		}},
		{"two shares at once, each with a token of its own", Exclusive, false, script{
			call(0, OpRLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 100, 110),
			call(1, OpRLock, 20, 30), sample(1, 31, 32, 6), call(1, OpUnlock, 40, 50),
		}},
		{"a writer with the token of the shares before it", Exclusive, false, script{
			call(0, OpRLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30),
			call(1, OpLock, 40, 50), sample(1, 51, 52, 5), call(1, OpUnlock, 60, 70),
		}},
		{"a share with the token of the writer before it", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30),
			call(1, OpRLock, 40, 50), sample(1, 51, 52, 5), call(1, OpUnlock, 60, 70),
		}},
		{"a share with the token of the shares before the writer before it", Exclusive, false, script{
			call(0, OpRLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30),
			call(2, OpLock, 31, 32), sample(2, 33, 34, 6), call(2, OpUnlock, 35, 36),
			call(1, OpRLock, 40, 50), sample(1, 51, 52, 5), call(1, OpUnlock, 60, 70),
		}},
		{"a downgrade, and a share beside it", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpDowngrade, 15, 25), sample(0, 26, 27, 5), call(0, OpUnlock, 100, 110),
			call(1, OpRLock, 5, 22), sample(1, 31, 32, 5), call(1, OpUnlock, 120, 130),
			call(2, OpRLock, 140, 150), sample(2, 151, 152, 5), call(2, OpUnlock, 160, 170),
		}},
		{"a share before the downgrade", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpDowngrade, 25, 30), call(0, OpUnlock, 100, 110),
			call(1, OpRLock, 5, 22), sample(1, 23, 24, 5), call(1, OpUnlock, 120, 130),
		}},
		{"a writer beside a downgrade", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpDowngrade, 15, 25), call(0, OpUnlock, 100, 110),
			call(1, OpLock, 12, 30), sample(1, 31, 32, 6), call(1, OpUnlock, 40, 50),
		}},
		{"a downgrade of nothing", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 13, 14), call(0, OpDowngrade, 15, 25),
		}},
		{"an equal token", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30),
			call(1, OpLock, 31, 35), sample(1, 36, 37, 5), call(1, OpUnlock, 40, 50),
		}},
		{"a lower token", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30),
			call(1, OpLock, 31, 35), sample(1, 36, 37, 4), call(1, OpUnlock, 40, 50),
		}},
		{"tokens with a gap, for a Lock of which nobody knows", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30),
			call(1, OpLock, 31, 35, OtherErr), call(1, OpLock, 36, 38), sample(1, 39, 39, 9), call(1, OpUnlock, 40, 50),
		}},
		{"a token that changes", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), sample(0, 13, 14, 6), call(0, OpUnlock, 20, 30),
		}},
		{"an expiry that was told, and a new holder", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), sample(0, 290, 291, 5), sample(0, 305, 306, 0), call(0, OpUnlock, 400, 410, IsLost),
			call(1, OpLock, 20, 301), sample(1, 302, 303, 6), call(1, OpUnlock, 310, 320),
		}},
		{"believed after the new holder has it", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), sample(0, 304, 304, 5), sample(0, 305, 306, 0), call(0, OpUnlock, 400, 410, IsLost),
			call(1, OpLock, 20, 301), sample(1, 302, 303, 6), call(1, OpUnlock, 310, 320),
		}},
		{"a token after the loss", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), sample(0, 305, 306, 0), sample(0, 307, 308, 5), call(0, OpUnlock, 400, 410, IsLost),
		}},
		{"Extend revives", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpLost, 300, 300), call(0, OpExtend, 307, 308), call(0, OpUnlock, 400, 410, IsLost),
		}},
		{"Unlock says nil after the loss", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpExtend, 300, 305, IsLost), call(0, OpUnlock, 400, 410),
		}},
		{"the loss is seen while Extend is under way, that says nil", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpExtend, 200, 305), sample(0, 303, 304, 0), call(0, OpUnlock, 310, 320, IsLost),
		}},
		{"the token is 0 while Unlock is under way", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30), sample(0, 25, 26, 0), call(0, OpLost, 27, 27),
		}},
		{"the token is there while Unlock is under way", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), sample(0, 19, 31, 5), call(0, OpUnlock, 20, 30),
		}},
		{"a token after Unlock", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30), sample(0, 31, 31, 5),
		}},
		{"a token after an Unlock that failed", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30, OtherErr), sample(0, 31, 31, 5),
		}},
		{"a new holder during an Unlock that failed", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 90, OtherErr),
			call(1, OpLock, 30, 40), sample(1, 41, 42, 6), call(1, OpUnlock, 50, 60),
		}},
		{"a token before Lock", Exclusive, false, script{sample(0, 1, 2, 5)}},
		{"a token after a Lock that failed", Exclusive, false, script{call(0, OpLock, 0, 1, OtherErr), sample(0, 1, 2, 5)}},
		{"a second Unlock says nil", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30), call(0, OpUnlock, 31, 32),
		}},
		{"a second Unlock says ErrNotHeld", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30), call(0, OpUnlock, 31, 32, IsNotHeld),
		}},
		{"a second Unlock cannot ask", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 20, 30), call(0, OpUnlock, 31, 32, OtherErr),
		}},
		{"Extend without a hold says nil", Exclusive, false, script{call(0, OpExtend, 0, 1)}},
		{"Extend of a hold says ErrNotHeld", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpExtend, 13, 14, IsNotHeld), call(0, OpUnlock, 20, 30),
		}},
		{"Unlock of a lost hold says ErrNotHeld", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpLost, 300, 300), call(0, OpUnlock, 310, 320, IsNotHeld),
		}},
		{"a Lock whose token was never seen is a hold, too", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 100, 110),
			call(1, OpLock, 20, 30), call(1, OpExtend, 31, 40), call(1, OpUnlock, 41, 50),
		}},
		{"lost before its token was seen", Exclusive, true, script{
			call(0, OpLock, 0, 400), sample(0, 401, 401, 0), call(0, OpUnlock, 402, 403, IsLost),
			call(1, OpLock, 350, 380), sample(1, 381, 382, 6), call(1, OpUnlock, 500, 600),
		}},
		{"a process that slept with its answers on the way", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpExtend, 200, 900), sample(0, 201, 901, 5), sample(0, 902, 903, 0), call(0, OpUnlock, 904, 905, IsLost),
			call(1, OpLock, 20, 510), sample(1, 511, 512, 6), call(1, OpUnlock, 2000, 2001, IsLost),
		}},
		{"a TTL that is over, and no loss told", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), sample(0, 1011, 1012, 5), call(0, OpUnlock, 1013, 1014, IsLost),
		}},
		{"a TTL that is over, and Unlock says nil", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 1013, 1014),
		}},
		{"a TTL that was extended, or may have been", Exclusive, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpExtend, 250, 260, OtherErr), sample(0, 1050, 1051, 5), call(0, OpUnlock, 1052, 1053),
		}},
		{"a TTL that is renewed", Exclusive, true, script{
			call(2, OpLock, 0, 10), sample(2, 11, 12, 5), sample(2, 5011, 5012, 5), call(2, OpUnlock, 5013, 5014),
		}},
		{"revoked, and believed for a TTL", Revocable, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), sample(0, 200, 201, 5), call(0, OpUnlock, 210, 220, IsLost),
			call(1, OpLock, 20, 30), sample(1, 31, 32, 6), call(1, OpUnlock, 40, 50),
		}},
		{"revoked, and believed for longer", Revocable, false, script{
			call(2, OpLock, 0, 10), sample(2, 11, 12, 5), sample(2, 1100, 1101, 5), call(2, OpUnlock, 1110, 1120, IsLost),
			call(1, OpLock, 20, 30), sample(1, 31, 32, 6), call(1, OpUnlock, 40, 50),
		}},
		{"revoked, and extended when another has it", Revocable, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpExtend, 200, 201), call(0, OpUnlock, 210, 220, IsLost),
			call(1, OpLock, 20, 30), sample(1, 31, 32, 6), call(1, OpUnlock, 40, 50),
		}},
		{"revoked, and the token comes again", Revocable, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 210, 220, IsLost),
			call(1, OpLock, 20, 30), sample(1, 31, 32, 5), call(1, OpUnlock, 40, 50),
		}},
		{"data lost, two at once, and the tokens rise", Fenced, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 210, 220),
			call(1, OpLock, 20, 30), sample(1, 31, 32, 6), call(1, OpUnlock, 40, 50),
		}},
		{"data lost, and the tokens fall", Fenced, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), call(0, OpUnlock, 210, 220),
			call(1, OpLock, 20, 30), sample(1, 31, 32, 4), call(1, OpUnlock, 40, 50),
		}},
		{"an early end of which only Unlock tells, and a new holder before", Undisturbed, false, script{
			call(0, OpLock, 0, 10), call(0, OpUnlock, 100, 110, IsLost), call(1, OpLock, 20, 30), call(1, OpUnlock, 40, 50),
		}},
		{"the same, with faults", Exclusive, true, script{
			call(0, OpLock, 0, 10), call(0, OpUnlock, 100, 110, IsLost), call(1, OpLock, 20, 30), call(1, OpUnlock, 40, 50),
		}},
		{"an early end of which only Extend tells, and a new holder before", Undisturbed, false, script{
			call(0, OpLock, 0, 10), call(0, OpExtend, 100, 110, IsLost), call(0, OpUnlock, 120, 130, IsLost),
			call(1, OpLock, 20, 30), call(1, OpUnlock, 40, 50),
		}},
		{"an early end after an Extend of which only Unlock tells", Undisturbed, false, script{
			call(0, OpLock, 0, 10), call(0, OpExtend, 140, 150), call(0, OpUnlock, 280, 290, IsLost),
			call(1, OpLock, 20, 270), call(1, OpUnlock, 275, 276),
		}},
		{"a new holder while an Unlock in doubt is under way", Undisturbed, true, script{
			call(0, OpLock, 0, 10), call(0, OpUnlock, 15, 110, IsLost), call(1, OpLock, 20, 30), call(1, OpUnlock, 40, 50),
		}},
		{"a new holder when no more is assured", Undisturbed, true, script{
			call(0, OpLock, 0, 10), call(0, OpUnlock, 200, 210, IsLost), call(1, OpLock, 20, 151), call(1, OpUnlock, 152, 153),
		}},
		{"an early end of which the token tells, and a new holder before its time", Undisturbed, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), sample(0, 15, 16, 0), call(0, OpUnlock, 100, 110, IsLost),
			call(1, OpLock, 20, 30), sample(1, 31, 32, 6), call(1, OpUnlock, 40, 50),
		}},
		{"an early end of which the token tells, and a new holder when no more is assured", Undisturbed, true, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5), sample(0, 15, 16, 0), call(0, OpUnlock, 200, 210, IsLost),
			call(1, OpLock, 20, 151), sample(1, 152, 153, 6), call(1, OpUnlock, 154, 155),
		}},
		{"never unlocked", Exclusive, false, script{
			call(0, OpLock, 0, 10), sample(0, 11, 12, 5),
			call(1, OpLock, 20, 30), sample(1, 31, 32, 6), call(1, OpUnlock, 40, 50),
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			got := c.script.played(c.demand).Check()
			if c.legal {
				require.Equal(t, porcupine.Ok, got.result, "%s", lines(c.script.played(c.demand), got.witness))
				return
			}
			require.Equal(t, porcupine.Illegal, got.result)
			assert.Equal(t, porcupine.Illegal, legal(got.witness, 0), "what is shown is wrong by itself")
		})
	}
}

func lines(h *History, holds []ops) string { return strings.Join(h.lines(holds), "\n") }

// simulated is a random history of a correct lock: client after client holds, and each knows what
// the contract lets it know.
func simulated(rng *rand.Rand, holds int) *History {
	var s script
	now, token := int64(1), uint64(1)
	const ttl = 300
	ms := func(n int64) int64 { return rng.Int64N(n) }
	idle := []int64{0, 0, 0} // since when each client has returned
	for range holds {
		c := rng.IntN(2)
		granted := max(now, idle[c]) + ms(5)
		token += 1 + rng.Uint64N(3)
		got := granted + ms(20)
		s = append(s, call(c, OpLock, idle[c]+ms(max(1, granted-idle[c]+1)), got))
		deadline := granted + ttl
		if rng.IntN(10) == 0 { // it slept
			got = deadline + ms(ttl)
			s[len(s)-1].Return = got * 1e6
		}
		at := got
		for at < deadline && rng.IntN(8) > 0 {
			from := at + ms(60)
			if from >= deadline {
				break
			}
			truth := from + ms(min(5, deadline-from))
			at = truth + ms(3)
			if rng.IntN(2) == 0 {
				s = append(s, sample(c, from, at, token))
				continue
			}
			s = append(s, call(c, OpExtend, from, at))
			deadline = truth + ttl
		}
		at += ms(2)
		switch {
		case at >= deadline || rng.IntN(6) == 0: // lost
			at = max(at, deadline+ms(30))
			if rng.IntN(2) == 0 {
				s = append(s, sample(c, at, at+ms(3), 0))
				at += 3
			}
			now = deadline
			idle[c] = at + 1 + ms(20)
			s = append(s, call(c, OpUnlock, at+1, idle[c], IsLost))
		default:
			truth := at + ms(min(20, deadline-at))
			now = truth
			idle[c] = truth + ms(20)
			returned := NoErr
			if rng.IntN(6) == 0 {
				returned = OtherErr
			}
			s = append(s, call(c, OpUnlock, at, idle[c], returned))
		}
		idle[c]++
	}
	return s.played(Exclusive)
}

// TestModel_acceptsWhatALockCanDo, and refuses it with one thing changed.
func TestModel_acceptsWhatALockCanDo(t *testing.T) {
	spoilt := map[string]int{}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		h := simulated(rng, 2+rng.IntN(60))
		j := h.Check()
		require.Equal(t, porcupine.Ok, j.result, "seed %d:\n%s", seed, lines(h, j.witness))
		for i, what := range slices.Sorted(maps.Keys(corruptions)) {
			spoil, rng := corruptions[what], rand.New(rand.NewPCG(seed, uint64(i)+1)) // not by the order of a map
			bad := script(slices.Clone(h.Events)).played(Exclusive)
			if spoil(bad, rng) {
				spoilt[what]++
				assert.Equal(t, porcupine.Illegal, bad.Check().result, "seed %d: %s", seed, what)
			}
		}
	}
	for what := range corruptions {
		assert.Greater(t, spoilt[what], 50, what)
	}
}

// corruptions change one thing, and say whether they found what to change.
var corruptions = map[string]func(h *History, rng *rand.Rand) bool{
	"the tokens of two holds swapped": func(h *History, rng *rand.Rand) bool {
		var tokens []uint64
		for _, e := range h.Events {
			if e.Token > 0 && !slices.Contains(tokens, e.Token) {
				tokens = append(tokens, e.Token)
			}
		}
		if len(tokens) < 2 {
			return false
		}
		i := rng.IntN(len(tokens) - 1)
		for k, e := range h.Events {
			switch e.Token {
			case tokens[i]:
				h.Events[k].Token = tokens[i+1]
			case tokens[i+1]:
				h.Events[k].Token = tokens[i]
			}
		}
		return true
	},
	"a token that was there before": func(h *History, rng *rand.Rand) bool {
		var seen []int
		for i, e := range h.Events {
			if e.Token > 0 {
				seen = append(seen, i)
			}
		}
		if len(seen) == 0 || h.Events[seen[0]].Token == h.Events[seen[len(seen)-1]].Token {
			return false
		}
		first := h.Events[seen[0]].Token
		last := h.Events[seen[len(seen)-1]].Token
		for i := range h.Events {
			if h.Events[i].Token == last {
				h.Events[i].Token = first
			}
		}
		return true
	},
	"a hold believed when another holds": func(h *History, rng *rand.Rand) bool {
		for i, e := range h.Events { // an Unlock, and then the other's hold up to its own
			if e.Op != OpUnlock {
				continue
			}
			for _, o := range h.Events[i+1:] {
				if o.Token > 0 && o.Client != e.Client && o.Call > e.Return {
					h.Events = append(h.Events, sample(e.Client, o.Return/1e6, o.Return/1e6, o.Token))
					return true
				}
			}
		}
		return false
	},
	"an Unlock that comes after the next one's": func(h *History, rng *rand.Rand) bool {
		unlocks := map[int]int{}
		for i, e := range h.Events {
			if e.Op != OpUnlock || e.Err != NoErr {
				continue
			}
			for _, o := range h.Events[i+1:] {
				if o.Client == e.Client {
					break
				}
				if o.Op == OpUnlock && o.Err == NoErr {
					unlocks[i] = int(o.Return) + 1
					break
				}
			}
		}
		if len(unlocks) == 0 {
			return false
		}
		all := slices.Sorted(maps.Keys(unlocks))
		i := all[rng.IntN(len(all))]
		h.Events[i].Call, h.Events[i].Return = int64(unlocks[i]), int64(unlocks[i])
		return noneBetween(h, i)
	},
	"a loss taken back by Unlock": func(h *History, rng *rand.Rand) bool {
		for i, e := range h.Events {
			if i > 0 && e.Err == IsLost && h.Events[i-1].Op == OpToken && h.Events[i-1].Token == 0 {
				h.Events[i].Err = NoErr
				return true
			}
		}
		return false
	},
}

// noneBetween reports whether the client of the event at i does nothing else while that goes on.
func noneBetween(h *History, i int) bool {
	e := h.Events[i]
	for k, o := range h.Events {
		if k > i && o.Client == e.Client && o.Call <= e.Return {
			return false
		}
	}
	return true
}
