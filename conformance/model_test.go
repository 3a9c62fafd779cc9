package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script writes a history by hand: times are milliseconds.
type script []event

func call(client int, op string, from, to int64, returned ...errKind) event {
	e := event{Client: client, Op: op, Call: from * 1e6, Return: to * 1e6}
	if len(returned) > 0 {
		e.Err = returned[0]
	}
	return e
}

func sample(client int, from, to int64, token uint64) event {
	return event{Client: client, Op: opToken, Call: from * 1e6, Return: to * 1e6, Token: token}
}

// played is the history of clients 0 to 2 of one name, and client 3 of another; 2 renews.
func (s script) played(d demand) *history {
	h := &history{Demand: d, Events: s}
	for i, name := range []string{"x", "x", "x", "y"} {
		h.Clients = append(h.Clients, client{Who: fmt.Sprint(i), Name: name, TTL: 300 * time.Millisecond, Renews: i == 2})
	}
	return h
}

// Each sentence of the contract that a history can break, kept and broken.
func TestModel(t *testing.T) {
	for _, c := range []struct {
		what   string
		demand demand
		legal  bool
		script script
	}{
		{"one after the other", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30),
			call(1, opLock, 5, 35), sample(1, 36, 37, 6), call(1, opUnlock, 40, 50),
		}},
		{"two at once", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 100, 110),
			call(1, opLock, 20, 30), sample(1, 31, 32, 6), call(1, opUnlock, 40, 50),
		}},
		{"two at once, of two names", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 100, 110),
			call(3, opLock, 20, 30), sample(3, 31, 32, 5), call(3, opUnlock, 40, 50),
		}},
		{"the next one gets it while Unlock is under way", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 100),
			call(1, opLock, 30, 40), sample(1, 41, 42, 6), call(1, opUnlock, 50, 60),
		}},
		{"the next one gets it before Unlock is called", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 50, 100),
			call(1, opLock, 30, 40), sample(1, 41, 42, 6), call(1, opUnlock, 60, 70),
		}},
		{"two shares at once, and a writer after them", exclusive, true, script{
			call(0, opRLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 100, 110),
			call(1, opTryRLock, 20, 30), sample(1, 31, 32, 5), call(1, opUnlock, 40, 50),
			call(1, opLock, 60, 120), sample(1, 121, 122, 6), call(1, opUnlock, 130, 140),
		}},
		{"shares of one phase, one after the other", exclusive, true, script{
			call(0, opRLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30),
			call(1, opRLock, 40, 50), sample(1, 51, 52, 5), call(1, opUnlock, 60, 70),
		}},
		{"a share and a writer at once", exclusive, false, script{
			call(0, opRLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 100, 110),
			call(1, opLock, 20, 30), sample(1, 31, 32, 6), call(1, opUnlock, 40, 50),
		}},
		{"a writer and a share at once", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 100, 110),
			call(1, opRLock, 20, 30), sample(1, 31, 32, 6), call(1, opUnlock, 40, 50),
		}},
		{"two shares at once, each with a token of its own", exclusive, false, script{
			call(0, opRLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 100, 110),
			call(1, opRLock, 20, 30), sample(1, 31, 32, 6), call(1, opUnlock, 40, 50),
		}},
		{"a writer with the token of the shares before it", exclusive, false, script{
			call(0, opRLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30),
			call(1, opLock, 40, 50), sample(1, 51, 52, 5), call(1, opUnlock, 60, 70),
		}},
		{"a share with the token of the writer before it", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30),
			call(1, opRLock, 40, 50), sample(1, 51, 52, 5), call(1, opUnlock, 60, 70),
		}},
		{"a share with the token of the shares before the writer before it", exclusive, false, script{
			call(0, opRLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30),
			call(2, opLock, 31, 32), sample(2, 33, 34, 6), call(2, opUnlock, 35, 36),
			call(1, opRLock, 40, 50), sample(1, 51, 52, 5), call(1, opUnlock, 60, 70),
		}},
		{"a downgrade, and a share beside it", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opDowngrade, 15, 25), sample(0, 26, 27, 5), call(0, opUnlock, 100, 110),
			call(1, opRLock, 5, 22), sample(1, 31, 32, 5), call(1, opUnlock, 120, 130),
			call(2, opRLock, 140, 150), sample(2, 151, 152, 5), call(2, opUnlock, 160, 170),
		}},
		{"a share before the downgrade", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opDowngrade, 25, 30), call(0, opUnlock, 100, 110),
			call(1, opRLock, 5, 22), sample(1, 23, 24, 5), call(1, opUnlock, 120, 130),
		}},
		{"a writer beside a downgrade", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opDowngrade, 15, 25), call(0, opUnlock, 100, 110),
			call(1, opLock, 12, 30), sample(1, 31, 32, 6), call(1, opUnlock, 40, 50),
		}},
		{"a downgrade of nothing", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 13, 14), call(0, opDowngrade, 15, 25),
		}},
		{"an equal token", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30),
			call(1, opLock, 31, 35), sample(1, 36, 37, 5), call(1, opUnlock, 40, 50),
		}},
		{"a lower token", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30),
			call(1, opLock, 31, 35), sample(1, 36, 37, 4), call(1, opUnlock, 40, 50),
		}},
		{"tokens with a gap, for a Lock of which nobody knows", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30),
			call(1, opLock, 31, 35, otherErr), call(1, opLock, 36, 38), sample(1, 39, 39, 9), call(1, opUnlock, 40, 50),
		}},
		{"a token that changes", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), sample(0, 13, 14, 6), call(0, opUnlock, 20, 30),
		}},
		{"an expiry that was told, and a new holder", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), sample(0, 290, 291, 5), sample(0, 305, 306, 0), call(0, opUnlock, 400, 410, isLost),
			call(1, opLock, 20, 301), sample(1, 302, 303, 6), call(1, opUnlock, 310, 320),
		}},
		{"believed after the new holder has it", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), sample(0, 304, 304, 5), sample(0, 305, 306, 0), call(0, opUnlock, 400, 410, isLost),
			call(1, opLock, 20, 301), sample(1, 302, 303, 6), call(1, opUnlock, 310, 320),
		}},
		{"a token after the loss", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), sample(0, 305, 306, 0), sample(0, 307, 308, 5), call(0, opUnlock, 400, 410, isLost),
		}},
		{"Extend revives", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opLost, 300, 300), call(0, opExtend, 307, 308), call(0, opUnlock, 400, 410, isLost),
		}},
		{"Unlock says nil after the loss", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opExtend, 300, 305, isLost), call(0, opUnlock, 400, 410),
		}},
		{"the loss is seen while Extend is under way, that says nil", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opExtend, 200, 305), sample(0, 303, 304, 0), call(0, opUnlock, 310, 320, isLost),
		}},
		{"the token is 0 while Unlock is under way", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30), sample(0, 25, 26, 0), call(0, opLost, 27, 27),
		}},
		{"the token is there while Unlock is under way", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), sample(0, 19, 31, 5), call(0, opUnlock, 20, 30),
		}},
		{"a token after Unlock", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30), sample(0, 31, 31, 5),
		}},
		{"a token after an Unlock that failed", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30, otherErr), sample(0, 31, 31, 5),
		}},
		{"a new holder during an Unlock that failed", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 90, otherErr),
			call(1, opLock, 30, 40), sample(1, 41, 42, 6), call(1, opUnlock, 50, 60),
		}},
		{"a token before Lock", exclusive, false, script{sample(0, 1, 2, 5)}},
		{"a token after a Lock that failed", exclusive, false, script{call(0, opLock, 0, 1, otherErr), sample(0, 1, 2, 5)}},
		{"a second Unlock says nil", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30), call(0, opUnlock, 31, 32),
		}},
		{"a second Unlock says ErrNotHeld", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30), call(0, opUnlock, 31, 32, isNotHeld),
		}},
		{"a second Unlock cannot ask", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 20, 30), call(0, opUnlock, 31, 32, otherErr),
		}},
		{"Extend without a hold says nil", exclusive, false, script{call(0, opExtend, 0, 1)}},
		{"Extend of a hold says ErrNotHeld", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opExtend, 13, 14, isNotHeld), call(0, opUnlock, 20, 30),
		}},
		{"Unlock of a lost hold says ErrNotHeld", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opLost, 300, 300), call(0, opUnlock, 310, 320, isNotHeld),
		}},
		{"a Lock whose token was never seen is a hold, too", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 100, 110),
			call(1, opLock, 20, 30), call(1, opExtend, 31, 40), call(1, opUnlock, 41, 50),
		}},
		{"lost before its token was seen", exclusive, true, script{
			call(0, opLock, 0, 400), sample(0, 401, 401, 0), call(0, opUnlock, 402, 403, isLost),
			call(1, opLock, 350, 380), sample(1, 381, 382, 6), call(1, opUnlock, 500, 600),
		}},
		{"a process that slept with its answers on the way", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opExtend, 200, 900), sample(0, 201, 901, 5), sample(0, 902, 903, 0), call(0, opUnlock, 904, 905, isLost),
			call(1, opLock, 20, 510), sample(1, 511, 512, 6), call(1, opUnlock, 2000, 2001, isLost),
		}},
		{"a TTL that is over, and no loss told", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), sample(0, 1011, 1012, 5), call(0, opUnlock, 1013, 1014, isLost),
		}},
		{"a TTL that is over, and Unlock says nil", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 1013, 1014),
		}},
		{"a TTL that was extended, or may have been", exclusive, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opExtend, 250, 260, otherErr), sample(0, 1050, 1051, 5), call(0, opUnlock, 1052, 1053),
		}},
		{"a TTL that is renewed", exclusive, true, script{
			call(2, opLock, 0, 10), sample(2, 11, 12, 5), sample(2, 5011, 5012, 5), call(2, opUnlock, 5013, 5014),
		}},
		{"revoked, and believed for a TTL", revocable, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), sample(0, 200, 201, 5), call(0, opUnlock, 210, 220, isLost),
			call(1, opLock, 20, 30), sample(1, 31, 32, 6), call(1, opUnlock, 40, 50),
		}},
		{"revoked, and believed for longer", revocable, false, script{
			call(2, opLock, 0, 10), sample(2, 11, 12, 5), sample(2, 1100, 1101, 5), call(2, opUnlock, 1110, 1120, isLost),
			call(1, opLock, 20, 30), sample(1, 31, 32, 6), call(1, opUnlock, 40, 50),
		}},
		{"revoked, and extended when another has it", revocable, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opExtend, 200, 201), call(0, opUnlock, 210, 220, isLost),
			call(1, opLock, 20, 30), sample(1, 31, 32, 6), call(1, opUnlock, 40, 50),
		}},
		{"revoked, and the token comes again", revocable, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 210, 220, isLost),
			call(1, opLock, 20, 30), sample(1, 31, 32, 5), call(1, opUnlock, 40, 50),
		}},
		{"data lost, two at once, and the tokens rise", fenced, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 210, 220),
			call(1, opLock, 20, 30), sample(1, 31, 32, 6), call(1, opUnlock, 40, 50),
		}},
		{"data lost, and the tokens fall", fenced, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), call(0, opUnlock, 210, 220),
			call(1, opLock, 20, 30), sample(1, 31, 32, 4), call(1, opUnlock, 40, 50),
		}},
		{"an early end of which only Unlock tells, and a new holder before", undisturbed, false, script{
			call(0, opLock, 0, 10), call(0, opUnlock, 100, 110, isLost), call(1, opLock, 20, 30), call(1, opUnlock, 40, 50),
		}},
		{"the same, with faults", exclusive, true, script{
			call(0, opLock, 0, 10), call(0, opUnlock, 100, 110, isLost), call(1, opLock, 20, 30), call(1, opUnlock, 40, 50),
		}},
		{"an early end of which only Extend tells, and a new holder before", undisturbed, false, script{
			call(0, opLock, 0, 10), call(0, opExtend, 100, 110, isLost), call(0, opUnlock, 120, 130, isLost),
			call(1, opLock, 20, 30), call(1, opUnlock, 40, 50),
		}},
		{"an early end after an Extend of which only Unlock tells", undisturbed, false, script{
			call(0, opLock, 0, 10), call(0, opExtend, 140, 150), call(0, opUnlock, 280, 290, isLost),
			call(1, opLock, 20, 270), call(1, opUnlock, 275, 276),
		}},
		{"a new holder while an Unlock in doubt is under way", undisturbed, true, script{
			call(0, opLock, 0, 10), call(0, opUnlock, 15, 110, isLost), call(1, opLock, 20, 30), call(1, opUnlock, 40, 50),
		}},
		{"a new holder when no more is assured", undisturbed, true, script{
			call(0, opLock, 0, 10), call(0, opUnlock, 200, 210, isLost), call(1, opLock, 20, 151), call(1, opUnlock, 152, 153),
		}},
		{"an early end of which the token tells, and a new holder before its time", undisturbed, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), sample(0, 15, 16, 0), call(0, opUnlock, 100, 110, isLost),
			call(1, opLock, 20, 30), sample(1, 31, 32, 6), call(1, opUnlock, 40, 50),
		}},
		{"an early end of which the token tells, and a new holder when no more is assured", undisturbed, true, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5), sample(0, 15, 16, 0), call(0, opUnlock, 200, 210, isLost),
			call(1, opLock, 20, 151), sample(1, 152, 153, 6), call(1, opUnlock, 154, 155),
		}},
		{"never unlocked", exclusive, false, script{
			call(0, opLock, 0, 10), sample(0, 11, 12, 5),
			call(1, opLock, 20, 30), sample(1, 31, 32, 6), call(1, opUnlock, 40, 50),
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			got := c.script.played(c.demand).check()
			if c.legal {
				require.Equal(t, porcupine.Ok, got.result, "%s", lines(c.script.played(c.demand), got.witness))
				return
			}
			require.Equal(t, porcupine.Illegal, got.result)
			assert.Equal(t, porcupine.Illegal, legal(got.witness, 0), "what is shown is wrong by itself")
		})
	}
}

func lines(h *history, holds []ops) string { return strings.Join(h.lines(holds), "\n") }
