package redisscript

// What Go and Lua have to agree on is here and in the first lines of the scripts; TestScripts_agreeWithGo compares the two.

// arg is an argument of a script, under the name that it has there: `local owner, expires = unpack(ARGV)`.
type arg struct {
	name  string
	value any
}

// values appends what is sent to to.
func values(to []any, args []arg) []any {
	for _, a := range args {
		to = append(to, a.value)
	}
	return to
}

// mostArgs is how many a script takes at most. With its two keys it has the ten that Redis takes of a user who has yet to give a
// password.
const mostArgs = 5

type acquireArgs struct {
	owner   any
	expires any    // TTL + KEEP in ms
	number  uint64 // the place in the queue of an owner that waits (0: the last), else a proposed token (0: the server's clock)
	due     string // see due.String
	meta    string
}

func (a acquireArgs) list() []arg {
	return []arg{{"owner", a.owner}, {"expires", a.expires}, {"number", a.number}, {"due", a.due}, {"meta", a.meta}}
}

type extendArgs struct {
	owner   any
	expires any // TTL + KEEP in ms
}

func (a extendArgs) list() []arg { return []arg{{"owner", a.owner}, {"expires", a.expires}} }

type releaseArgs struct {
	owner any // '>' before it: its claim alone
	token any // 0: not known
	sent  any // how often this release has been sent before
}

func (a releaseArgs) list() []arg {
	return []arg{{"owner", a.owner}, {"token", a.token}, {"sent", a.sent}}
}

type raiseArgs struct {
	owner  any
	wanted uint64 // the token that is to be its own
}

func (a raiseArgs) list() []arg { return []arg{{"owner", a.owner}, {"wanted", a.wanted}} }

type inspectArgs struct {
	last int // how far into the queue to look, as ZRANGE counts
}

func (a inspectArgs) list() []arg { return []arg{{"last", a.last}} }

type memoryArgs struct {
	section string // of INFO
}

func (a memoryArgs) list() []arg { return []arg{{"section", a.section}} }

// The status that the acquire script returns first, and what its answer is if its reply is lost.
const (
	unknown = -2
	late    = -1
	held    = 0
	granted = 1
)

// What scripts return of several values, in the words of the Lua: `return {HELD, left, now, place, back}`.
var (
	// A grant whose token is now is that alone, as a text.
	acquireReplies = map[int64][]string{
		granted: {"GRANTED", "token", "now"},
		held:    {"HELD", "left", "now", "place", "back"}, // left is in ms, and back is 1 if the place had been lost
		late:    {"LATE", "now"},
	}
	inspectReply = []string{"owner", "meta", "left", "token", "waiters"}
)

// record is a reply of several values, to be read by their names.
type record struct {
	names  []string
	values []any
	bad    bool // it does not have the values that were asked for
}

func recordOf(names []string, values []any) *record {
	return &record{names, values, len(names) == 0 || len(names) != len(values)}
}

// value returns what is called name; a name that is not there is a mistake of this package.
func value[T any](r *record, name string) (v T) {
	if r.bad {
		return v
	}
	for i := range r.names {
		if r.names[i] == name {
			v, ok := r.values[i].(T)
			r.bad = !ok
			return v
		}
	}
	panic("no " + name + " in the reply")
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
