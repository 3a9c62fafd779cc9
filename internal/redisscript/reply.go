package redisscript

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-locker/locker/driver"
)

// answer is a reply to the take script.
type answer struct {
	status  int64
	token   int64              // if granted
	left    time.Duration      // if held: until it expires, unless extended
	place   uint64             // if held: in the queue, for those who wait
	back    bool               // if held: the place was lost, and is there again
	earlier bool               // if held: by one that waited, or for one that waits, whose place is smaller
	holder  driver.Participant // if held: by whom; not of a proposal, nor of a lock that is claimed for a waiter
	now     int64              // by the server's clock, in µs
	covered int64              // if granted: until when, by that clock, the mark need not be written; 0: not said
}

// The status that the take script returns first; unknown is the answer if its reply is lost.
const (
	unknown = -2
	late    = -1
	held    = 0
	granted = 1
)

// What scripts return of several values, in the words of the Lua: `return {LATE, now}`.
var (
	// A grant under the token that was proposed, or else under now, is now alone, as a text.
	takeReplies = map[int64][]string{
		granted: {"GRANTED", "token", "now", "covered"},
		held:    {"HELD", "left", "now", "place", "back", "earlier", "holder", "about"}, // left is in ms; back and earlier are 0 or 1
		late:    {"LATE", "now"},
	}
	inspectReply = []string{"owner", "meta", "left", "token", "age", "waiters", "readers"}
	infoReply    = []string{"clock", "text"}
)

// tokenBits is how large tokens are: Lua keeps whole numbers up to there.
const tokenBits = 53

// parseAnswer returns the answer to a request with that number; see the take script.
func parseAnswer(reply any, number int64) (a answer, err error) {
	ok := false
	if text, isText := textOf(reply); isText {
		now, err := strconv.ParseUint(text, 10, tokenBits)
		a, ok = answer{status: granted, token: cmp.Or(number, int64(now)), now: int64(now)}, err == nil && now > 0
	} else if all, _ := reply.([]any); len(all) > 0 {
		a, ok = answerOf(all)
	}
	if !ok {
		return answer{status: unknown}, fmt.Errorf("unexpected reply to the take script: %v", reply)
	}
	return a, nil
}

func answerOf(all []any) (a answer, ok bool) {
	a.status, ok = all[0].(int64)
	r := recordOf(takeReplies[a.status], all)
	a.now = value[int64](r, "now")
	switch {
	case r.bad:
	case a.status == granted:
		a.token, a.covered = value[int64](r, "token"), value[int64](r, "covered")
		ok = ok && a.token > 0 && a.token < 1<<tokenBits
	case a.status == held:
		a.left = time.Duration(value[int64](r, "left")) * time.Millisecond
		a.place, a.back = uint64(value[int64](r, "place")), value[int64](r, "back") == 1
		a.earlier = value[int64](r, "earlier") == 1
		a.holder = driver.Participant{ID: r.text("holder"), Metadata: r.text("about")}
	}
	return a, ok && !r.bad
}

// heldBy returns the error of a lock that is another's.
func (a answer) heldBy() error {
	if a.holder.ID == "" {
		return driver.ErrHeld
	}
	return &driver.HeldError{Holder: a.holder}
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

// lostUnlessOne returns the error of a script that returns 1 if the hold is there.
func lostUnlessOne(r Reply) error {
	if r.Err != nil {
		return r.Err
	}
	switch n, ok := r.Value.(int64); {
	case !ok:
		return fmt.Errorf("unexpected reply to a script: %v", r.Value)
	case n != 1:
		return driver.ErrLost
	default:
		return nil
	}
}
