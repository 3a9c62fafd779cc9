package breaks

import "github.com/go-locker/locker/internal/test/simulation"

// today are fixes that a person has taken back in the code of today, by the names of breaks: git
// cannot, because that code has changed since.
var today = map[string][]edit{
	"core-try-on-a-broken-connection-fails":               inCore("a Lock fails because the connection of its first request was broken"),
	"core-close-beside-a-function":                        inCore("Close does not wait for a function that is still returning"),
	"core-extension-nobody-heard-of":                      inCore("a hold whose Extend had an unknown outcome is not released when it expires"),
	"core-renewal-answered-too-late":                      inCore("the lease that a renewal left behind, answered too late, is not released"),
	"core-renewal-without-a-pause":                        inCore("a hold on a session without recent answers is renewed again and again, without a pause"),
	"core-unlock-with-an-ended-context-waits":             inCore("an Unlock whose context has ended releases only after a pause"),
	"zookeeper-unlock-in-a-silence-leaves-the-lock-taken": inCore("a hold whose Unlock was not answered by the deadline is not released later, though its session goes on"),
	"postgres-lock-on-an-ended-connection-fails": {
		{"postgres/claim.go", "if c.Wake == nil || !broken(err) || connections <= 0 {", "if true || connections <= 0 {"},
	},
	"redlock-clocks-too-far-apart-say-held": {
		{"redlock/ballot.go", "		return denied\n	default:\n		return failed\n", "		return denied\n	default:\n		return denied\n"},
	},
	"redis-reader-overtakes-a-writer": {
		{"internal/redisscript/lua/take_shared.lua", "'shared', token, 'first', '')", "'shared', token)"},
		{"internal/redisscript/lua/downgrade.lua", "'before', 0, 'first', '')", "'before', 0)"},
		{"internal/redisscript/lua/lib/shares.lua", "'queue', 1, 'first', '')", "'queue', 1)"},
		{"internal/redisscript/lua/lib/shares.lua", "'queue', 'first', 'seen', 'writer')", "'queue', 'writer')"},
	},
	"zookeeper-second-unlock-says-nil": {
		{"zookeeper/force.go", "own.number <= at.dropped || ", ""},
	},
	"redis-silent-connections-keep-requests": {
		{"internal/redisscript/sender.go", "	if time.Since(s.latest) < overdue {\n		return false\n	}\n	s.era++\n	s.underWay = 0\n	return true\n", "	return false\n"},
		{"internal/redisscript/sender.go", "	case len(s.waiting) == 1:\n		s.overtime.Reset(overdue - time.Since(s.latest))\n", "	case len(s.waiting) == 1:\n		s.overtime.Reset(overdue)\n"},
		{"internal/redisscript/sender.go", "	if !s.makeRoom() { // another batch was sent since\n		s.overtime.Reset(overdue - time.Since(s.latest))\n		return\n	}\n	s.underWay++\n", "	s.era++\n	s.underWay = 1\n"},
	},
	"redis-tokens-of-shares-fall": {
		{"internal/redisscript/lua/take_shared.lua", "last and left > 0 and current == SHARES, last, 0", "last and redis.call('HGET', KEYS[1], 'shared') == lock[2], last, 0"},
		{"internal/redisscript/lua/take_shared.lua", "if not others then\n  redis.call('HSET'", "if not (left > 0 and current == SHARES) then\n  redis.call('HSET'"},
	},
	"redis-writer-that-never-looks-blocks": {
		{"internal/redisscript/lua/lib/shares.lua", "  return absence < ABSENT\n", "  return true\n"},
	},
	"redis-late-take-holds-longer": {
		{"internal/redisscript/lua/lib/take.lua", "return math.max(late, 0), late > 0 and late > tonumber(string.match(due, '/(%d+)', 33))", "return 0, false"},
		{"internal/redisscript/claim.go", "	late := by.late(a.now)\n", "	late := time.Duration(0)\n"},
	},
	"redlock-counts-more-than-its-nodes-have": {
		{"redlock/claim.go", "			left = min(left, s.lease.Validity()) // a request that arrived late has the lock for what is left of the TTL\n", "			continue\n"},
	},
	"zookeeper-close-hangs": {
		{"zookeeper/link.go", "	_, err := l.Conn.Write(b)\n", "	n, err := l.Conn.Write(b)\n"},
		{"zookeeper/link.go", "	if err != nil {\n		_ = l.Close()\n	}\n	return len(b), nil\n", "	return n, err\n"},
	},
	"etcd-two-holders-on-3.7": {
		{"etcd/key.go", "clientv3.OpGet(p.folder, clientv3.WithFirstCreate()...)", "clientv3.OpGet(p.folder, append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())...)"},
		{"etcd/entry.go", "append(opts, clientv3.WithRange(end), ", "append(opts, clientv3.WithKeysOnly(), clientv3.WithRange(end), "},
	},
	"redis-unlock-after-a-failover-says-nil": {
		{"internal/redisscript/lua/release.lua", "token == known[2] or token == known[1] and not is_held", "tonumber(token) < (tonumber(known[1]) or 0) or token == known[1] and not is_held"},
	},
	"redis-first-unlock-after-a-failover-says-nil": {
		{"internal/redisscript/lua/release.lua", "token == known[2] or token == known[1] and not is_held", "tonumber(token) < (tonumber(known[1]) or 0) or token == known[1] and not is_held"},
		{"internal/redisscript/lua/release.lua", "if sent == '0' then\n  return 0\nend\n", ""},
	},
}

// inCore returns the change of a bug that the simulation of the core puts back, too.
func inCore(name string) []edit {
	for _, b := range simulation.Bugs {
		if b.Name == name {
			return []edit{{b.File, b.Old, b.New}}
		}
	}
	panic("the simulation has no bug " + name)
}
