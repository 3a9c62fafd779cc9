package script

import (
	"os"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) { os.Exit(testserver.Tests(m).Run()) }

// atServer runs the scripts of one lock with arguments of the test's choice.
type atServer struct {
	t      *testing.T
	server *testserver.RedisServer
	rdb    *goredis.Client
	keys   []string
}

// newAtServer is of a lock for which processes are subscribed.
func newAtServer(t *testing.T, processes ...string) *atServer {
	t.Helper()
	return atServerOf(t, testserver.SharedRedis(t), processes...)
}

// atServerOf is of a lock called as the test is, for servers are shared.
func atServerOf(t *testing.T, server *testserver.RedisServer, processes ...string) *atServer {
	t.Helper()
	rdb := testwait.Closed(goredis.NewClient(&goredis.Options{Addr: server.Addr()}), nil)(t)
	s := &atServer{t, server, rdb, Keys(t.Name() + ":x")} // a prefix of its own has a mark of its own
	for _, process := range processes {
		s.subscribe(process)
	}
	return s
}

// Keys returns what the scripts take, as a client library has it.
func Keys(name string) (keys []string) {
	for _, key := range KeysOf(name) {
		keys = append(keys, key.(string))
	}
	return keys
}

// inTime is when a request with that number is due that is never late.
func inTime(number int64) string { return Due{9999999999999999, 0}.Arg(never, number) }

// never is a mark that covers for ever.
var never = func() *Mark {
	m := &Mark{}
	m.covered.Store(9999999999999999)
	return m
}()

// strict comes before a script, and refuses keys that it does not declare, as some servers do. It
// lets the mark through, which those refuse to scripts that do without it then.
const strict = `
local server, declared = redis, {}
for _, key in ipairs(KEYS) do
  declared[key] = true
end
local none = { TIME = true, PUBLISH = true, SPUBLISH = true, PUBSUB = true, INFO = true }
local function of(call)
  return function(command, ...)
    local key = tostring((...))
    assert(none[command] or declared[key] or string.find(key, '%mark', 1, true), command .. ' of a key that is not declared')
    return call(command, ...)
  end
end
local redis = setmetatable({ call = of(server.call), pcall = of(server.pcall) }, { __index = server })
`

func (s *atServer) run(script *Script, args []any) any {
	s.t.Helper()
	reply, err := s.rdb.Eval(s.t.Context(), strict+script.Source, s.keys, args...).Result()
	require.NoError(s.t, err)
	return reply
}

// take runs a script that takes. number is a proposed token, or 0.
func (s *atServer) take(take *Script, owner string, ttl time.Duration, due, meta string, number int64) Answer {
	s.t.Helper()
	a, err := ParseAnswer(s.run(take, []any{owner, Expiry(ttl), due, meta}), number)
	require.NoError(s.t, err)
	return a
}

// ask runs the script take with a waiter's place, or 0 for an owner that has none.
func (s *atServer) ask(owner string, ttl time.Duration, place uint64) Answer {
	s.t.Helper()
	return s.take(Take, owner, ttl, inTime(int64(place)), "", 0)
}

// propose runs the script of that name.
func (s *atServer) propose(owner string, ttl time.Duration, token int64) Answer {
	s.t.Helper()
	return s.take(Propose, owner, ttl, inTime(token), "", token)
}

func (s *atServer) release(owner string, token int64, sentBefore int) int64 {
	s.t.Helper()
	return s.run(Release, []any{owner, token, sentBefore}).(int64)
}

// subscribe makes a process that is subscribed, and returns its messages.
func (s *atServer) subscribe(process string) <-chan *goredis.Message {
	s.t.Helper()
	sub := testwait.Closed(s.rdb.Subscribe(s.t.Context(), s.keys[0]+":"+process), nil)(s.t)
	_, err := sub.Receive(s.t.Context())
	require.NoError(s.t, err)
	return sub.Channel()
}

func (s *atServer) owner() string {
	return s.rdb.HGet(s.t.Context(), s.keys[0], "owner").Val()
}

func (s *atServer) queue() []string {
	return s.rdb.ZRange(s.t.Context(), s.keys[1], 0, -1).Val()
}

// expire has what there is, hold or claim, be over.
func (s *atServer) expire() {
	s.t.Helper()
	require.NoError(s.t, s.rdb.PExpire(s.t.Context(), s.keys[0], Keep-time.Millisecond).Err())
}

// wantIdle fails unless nobody holds, is claimed for or waits.
func (s *atServer) wantIdle() {
	s.t.Helper()
	assert.Empty(s.t, s.owner())
	assert.Empty(s.t, s.queue())
}

const ttl = 10 * time.Second
