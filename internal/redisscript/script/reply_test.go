package script

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

// fromJSON makes a reply of JSON: numbers are int64, and texts as go-redis has them, or redigo.
func fromJSON(value any, redigo bool) (reply any, ok bool) {
	switch v := value.(type) {
	case nil:
		return nil, true
	case string:
		if redigo {
			return []byte(v), true
		}
		return v, true
	case json.Number:
		n, err := v.Int64()
		return n, err == nil
	case []any:
		all := make([]any, len(v))
		for i := range v {
			if all[i], ok = fromJSON(v[i], redigo); !ok {
				return nil, false
			}
		}
		return all, true
	default:
		return nil, false
	}
}

// Whatever a server answers, be it none of ours: nothing is taken for a grant but what the scripts return for one, what nobody knows
// is an error, and nobody panics.
func FuzzReplies(f *testing.F) {
	for _, seed := range []string{
		`"1795367485451592"`, `[1,1795367485451592,1795367485451600,1795367486451600]`, `[-1,7]`, `[-1,0,7]`, `[0,30000,7,3,1,0,"a","host 7"]`, `[0,-1,7,0,0,1,"",""]`, `[0,30000,7,3,1]`, `[0,30000,7,3,1,0,"a",7]`,
		`1`, `0`, `-1`, `null`, `""`, `"OK"`, `"0"`, `"-7"`, `"+7"`, `"007"`, `" 7"`, `"9007199254740991"`, `"9007199254740992"`, `"18446744073709551615"`,
		`[]`, `[1]`, `[1,0,7,0]`, `[1,-7,7,0]`, `[1,9007199254740992,7,0]`, `[1,"7",7,0]`, `["1",7,7,0]`, `[2,7,7,0]`, `[1,7,7,0,0]`, `[0,1,2,3,4,5]`,
		`[0,9223372036854775807,7,0,0,0,"",""]`, `[[1,7,7,0]]`, `["7",1,[0,5,7,1,0]]`, `[null,"7"]`, `[1,1,-1,0]`, `[-1,1,1]`,
		`["","",-60002,"",-1,[],[]]`, `["a","host 7",1,"7",5,["pb/1"],[]]`, `[">pb/1","",1,"7",-1,["pb/2"],[]]`,
		`["","",1,""]`, `["","",1,"",-1,[]]`, `["","",1,"",-1,[],[],[]]`, `[null,"",1,"",-1,[],[]]`, `["",null,1,"",-1,[],[]]`, `["","","1","",-1,[],[]]`, `["","",1,7,-1,[],[]]`,
		`["","",1,"",-1,null,[]]`, `["","",1,"",-1,[],null]`, `["+","",1,"7",-1,[],[1]]`, `["","",1,"",-1,[null],[]]`, `["","",1,"seven",-1,[],[]]`, `["","",1,"-7",-1,[],[]]`, `["","",1,"","",[],[]]`,
		`["+","",1,"7",-1,["pb/2"],["~a",">pb/~1"]]`, `["a","",9223372036854775807,"7",-1,[],[]]`, `["a","",1,"7",-1,[null],[]]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, encoded string) {
		var decoded any
		d := json.NewDecoder(strings.NewReader(encoded))
		d.UseNumber()
		if d.Decode(&decoded) != nil {
			return
		}
		for _, redigo := range []bool{false, true} {
			reply, ok := fromJSON(decoded, redigo)
			if !ok {
				return
			}
			checkAnswer(t, reply)
			checkState(t, reply)
		}
	})
}

// grant returns the token of a reply to the acquire script that is a grant, as acquire.lua describes it.
func grant(reply any) (token int64, ok bool) {
	if text, isText := textOf(reply); isText {
		token, _ = strconv.ParseInt(text, 10, 64)
		return token, text != "" && strings.Trim(text, "0123456789") == "" && 0 < token && token < 1<<53
	}
	all, _ := reply.([]any)
	if len(all) != 4 || all[0] != any(int64(Granted)) {
		return 0, false
	}
	token, ok = all[1].(int64)
	_, hasTime := all[2].(int64)
	_, hasCovered := all[3].(int64)
	return token, ok && hasTime && hasCovered && 0 < token && token < 1<<53
}

func checkAnswer(t *testing.T, reply any) {
	t.Helper()
	a, err := ParseAnswer(reply, 0)
	token, granting := grant(reply)
	if proposed, _ := ParseAnswer(reply, 7); granting {
		want := a
		if _, alone := textOf(reply); alone {
			want.Token = 7
		}
		if proposed != want {
			t.Errorf("%#v is the answer %+v to one that proposes 7", reply, proposed)
		}
	}
	switch {
	case granting != (a.Status == Granted), granting && (a.Token != token || err != nil):
		t.Errorf("%#v is the answer %+v, %v", reply, a, err)
	case (err != nil) != (a.Status == Unknown):
		t.Errorf("%#v is the answer %+v, with the error %v: what is not understood may be a grant, and nothing else", reply, a, err)
	case a.Status == Held && a.Left > 0 && reply.([]any)[1].(int64) <= 0:
		t.Errorf("%#v leaves %v", reply, a.Left)
	}
	if granting && (Replicas{N: 1}).check(reply, 0) == nil {
		t.Errorf("%#v is a grant, which no replica has acknowledged", reply)
	}
}

// shape is what values are: texts, numbers, lists of texts, or anything else.
func shape(values []any) (all string) {
	for _, v := range values {
		_, isText := textOf(v)
		_, isNumber := v.(int64)
		some, isList := v.([]any)
		switch {
		case isText:
			all += "t"
		case isNumber:
			all += "n"
		case isList && strings.Trim(shape(some), "t") == "":
			all += "l"
		default:
			all += "?"
		}
	}
	return all
}

func checkState(t *testing.T, reply any) {
	t.Helper()
	state, ok := ParseState(reply)
	if !ok {
		return
	}
	all := reply.([]any)
	if token, _ := textOf(all[3]); shape(all) != "ttntnll" || strings.Trim(token, "0123456789") != "" {
		t.Fatalf("%#v is understood: %+v", reply, state)
	}
	shared := state.Held && state.Holder.ID == ""
	if owner, _ := textOf(all[0]); shared && owner != SharesMark {
		t.Errorf("%#v is shared: %+v", reply, state)
	}
	if state.Held && (state.Left <= 0 || strings.HasPrefix(state.Holder.ID, ClaimMark)) {
		t.Errorf("%#v is held: %+v", reply, state)
	}
	if owner, _ := textOf(all[0]); state.Held && !shared && state.Holder.ID != owner {
		t.Errorf("%#v is held by %q", reply, state.Holder.ID)
	}
	if left := all[2].(int64); !state.Held && left <= 0 && state.Left != 0 {
		t.Errorf("%#v has %v left", reply, state.Left)
	}
	if waiters := len(state.Waiters) + len(state.Shares) - len(all[5].([]any)) - len(all[6].([]any)); waiters < 0 || waiters > 1 {
		t.Errorf("%#v has the waiters %v", reply, state.Waiters)
	}
}

func TestParseState_ofWhatTheScriptReturns(t *testing.T) {
	none, unknown := []any{}, int64(-1)
	for name, c := range map[string]struct {
		reply any
		want  driver.State
	}{
		"nothing":  {[]any{"", "", int64(-60002), "", unknown, none, none}, driver.State{}},
		"released": {[]any{"", "", int64(500), "7", unknown, none, none}, driver.State{Token: 7}},
		"expired":  {[]any{"a", "host 7", int64(0), "7", unknown, none, none}, driver.State{Token: 7}},
		"held": {[]any{"a", "host 7", int64(1), "7", unknown, none, none}, driver.State{
			Held: true, Holder: driver.Participant{ID: "a", Metadata: "host 7"}, Left: time.Millisecond, Token: 7,
		}},
		"held, as redigo has it": {[]any{[]byte("a"), []byte(""), int64(1), []byte("7"), unknown, []any{[]byte("pb/1"), []byte("pb/2")}, none}, driver.State{
			Held: true, Holder: driver.Participant{ID: "a"}, Left: time.Millisecond, Token: 7,
			Waiters: []driver.Participant{{ID: "pb/1"}, {ID: "pb/2"}},
		}},
		"shared": {[]any{"+", "", int64(1), "7", unknown, []any{"pb/2"}, []any{"~a", ">pb/~1", "c"}}, driver.State{
			Held: true, Shares: []driver.Participant{{ID: "~a"}, {ID: "c"}}, Left: time.Millisecond, Token: 7,
			Waiters: []driver.Participant{{ID: "pb/~1"}, {ID: "pb/2"}},
		}},
		"handed over to some": {[]any{">+", "", int64(1), "7", unknown, []any{"pb/2"}, []any{">pb/~1"}}, driver.State{
			Token: 7, Waiters: []driver.Participant{{ID: "pb/~1"}, {ID: "pb/2"}},
		}},
		"handed over": {[]any{">pb/1", "", int64(1), "7", unknown, []any{"pb/2"}, none}, driver.State{
			Token: 7, Waiters: []driver.Participant{{ID: "pb/1"}, {ID: "pb/2"}},
		}},
		"handed over, and not taken": {[]any{">pb/1", "", int64(-1), "7", unknown, []any{"pb/2"}, none}, driver.State{
			Token: 7, Waiters: []driver.Participant{{ID: "pb/2"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			state, ok := ParseState(c.reply)
			require.True(t, ok)
			assert.Equal(t, c.want, state)
		})
	}
}
