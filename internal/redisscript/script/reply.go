package script

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-locker/locker/driver"
)

// Answer is a reply to the take script.
type Answer struct {
	Status  int64
	Token   int64              // if granted
	Left    time.Duration      // if held: until it expires, unless extended
	Place   uint64             // if held: in the queue, for those who wait
	Back    bool               // if held: the place was lost, and is there again
	Earlier bool               // if held: by one that waited, or for one that waits, whose place is smaller
	Holder  driver.Participant // if held: by whom; not of a proposal, nor of a lock that is claimed for a waiter
	Now     int64              // by the server's clock, in µs
	covered int64              // if granted: until when, by that clock, the mark need not be written; 0: not said
}

// The status that the take script returns first; Unknown is the answer if its reply is lost.
const (
	Unknown = -2
	Late    = -1
	Held    = 0
	Granted = 1
)

// What scripts return of several values, in the words of the Lua: `return {LATE, now}`.
var (
	// A grant under the token that was proposed, or else under now, is now alone, as a text.
	takeReplies = map[int64][]string{
		Granted: {"GRANTED", "token", "now", "covered"},
		Held:    {"HELD", "left", "now", "place", "back", "earlier", "holder", "about"}, // left is in ms; back and earlier are 0 or 1
		Late:    {"LATE", "now"},
	}
	inspectReply = []string{"owner", "meta", "left", "token", "age", "waiters", "readers"}
	infoReply    = []string{"clock", "text"}
)

// TokenBits is how large tokens are: Lua keeps whole numbers up to there.
const TokenBits = 53

// ParseAnswer returns the answer to a request with that number; see the take script.
func ParseAnswer(reply any, number int64) (a Answer, err error) {
	ok := false
	if text, isText := textOf(reply); isText {
		now, err := strconv.ParseUint(text, 10, TokenBits)
		a, ok = Answer{Status: Granted, Token: cmp.Or(number, int64(now)), Now: int64(now)}, err == nil && now > 0
	} else if all, _ := reply.([]any); len(all) > 0 {
		a, ok = answerOf(all)
	}
	if !ok {
		return Answer{Status: Unknown}, fmt.Errorf("unexpected reply to the take script: %v", reply)
	}
	return a, nil
}

func answerOf(all []any) (a Answer, ok bool) {
	a.Status, ok = all[0].(int64)
	r := recordOf(takeReplies[a.Status], all)
	a.Now = value[int64](r, "now")
	switch {
	case r.bad:
	case a.Status == Granted:
		a.Token, a.covered = value[int64](r, "token"), value[int64](r, "covered")
		ok = ok && a.Token > 0 && a.Token < 1<<TokenBits
	case a.Status == Held:
		a.Left = time.Duration(value[int64](r, "left")) * time.Millisecond
		a.Place, a.Back = uint64(value[int64](r, "place")), value[int64](r, "back") == 1
		a.Earlier = value[int64](r, "earlier") == 1
		a.Holder = participant(r.text("holder"), r.text("about"))
	}
	return a, ok && !r.bad
}

// HeldBy returns the error of a lock that is another's.
func (a Answer) HeldBy() error {
	if a.Holder.ID == "" {
		return driver.ErrHeld
	}
	return &driver.HeldError{Holder: a.Holder}
}

// ParseState returns what the inspect script has found. Who was handed the lock and has yet to take
// it is the first of the waiters still.
func ParseState(reply any) (state driver.State, ok bool) {
	all, _ := reply.([]any)
	r := recordOf(inspectReply, all)
	owner, metadata, last := r.text("owner"), r.text("meta"), r.text("token")
	left, queue, readers := value[int64](r, "left"), value[[]any](r, "waiters"), value[[]any](r, "readers")
	age := value[int64](r, "age")
	token, err := strconv.ParseUint(cmp.Or(last, "0"), 10, 64)
	if r.bad || err != nil || left > int64(math.MaxInt64/time.Millisecond) {
		return state, false
	}
	state.Token = token
	claimant, claimed := strings.CutPrefix(owner, ClaimMark)
	switch {
	case owner == "" || left <= 0 || claimed && claimant == SharesMark:
	case claimed:
		state.Waiters = append(state.Waiters, participant(claimant, ""))
	default:
		state.Held, state.Left = true, time.Duration(left)*time.Millisecond
		if owner != SharesMark {
			state.Holder = participant(owner, metadata)
		}
	}
	if state.Held && age >= 0 && token > 0 {
		state.Since = time.Now().Add(-time.Duration(age) * time.Microsecond)
	}
	for i, each := range slices.Concat(readers, queue) {
		id, ok := textOf(each)
		if !ok {
			return state, false
		}
		if owner, waits := strings.CutPrefix(id, ClaimMark); waits || i >= len(readers) {
			state.Waiters = append(state.Waiters, participant(owner, ""))
		} else {
			state.Shares = append(state.Shares, participant(owner, ""))
		}
	}
	return state, true
}

// participant returns an owner whose metadata is beside it, or in it.
func participant(owner, metadata string) driver.Participant {
	id, inside, _ := strings.Cut(owner, MetadataMark)
	return driver.Participant{ID: id, Metadata: cmp.Or(metadata, inside)}
}

// ParseInfo returns the server's clock, in µs, and the section of INFO that the info script was
// asked for.
func ParseInfo(reply any) (now int64, section string, err error) {
	all, _ := reply.([]any)
	r := recordOf(infoReply, all)
	now, err = strconv.ParseInt(r.text("clock"), 10, 64)
	if section = r.text("text"); r.bad || err != nil {
		return 0, "", fmt.Errorf("unexpected reply to the info script: %v", reply)
	}
	return now, section, nil
}

// record is a reply of several values, to be read by their names.
type record struct {
	names  []string
	values []any
	bad    bool // it does not have the values that were asked for
}

func recordOf(names []string, values []any) *record {
	return &record{names, values, len(names) == 0 || len(names) != len(values)}
}

// value returns what is called name.
func value[T any](r *record, name string) (v T) {
	if i := slices.Index(r.names, name); !r.bad {
		v, ok := r.values[i].(T) // a name that is not there is a mistake of this package
		r.bad = !ok
		return v
	}
	return v
}

// text returns what is called name, which client libraries have as a string or as bytes.
func (r *record) text(name string) string {
	text, ok := textOf(value[any](r, name))
	r.bad = r.bad || !ok
	return text
}

// textOf returns a text of a reply.
func textOf(value any) (text string, ok bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	default:
		return "", false
	}
}

// LostUnlessOne returns the error of a script that returns 1 if the hold is there.
func (r Reply) LostUnlessOne() error {
	if r.Err != nil {
		return r.Err
	}
	if n, ok := r.Value.(int64); !ok {
		return fmt.Errorf("unexpected reply to a script: %v", r.Value)
	} else if n != 1 {
		return driver.ErrLost
	}
	return nil
}
