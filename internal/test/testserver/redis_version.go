package testserver

import (
	"os/exec"
	"regexp"
	"strings"
	"sync"
)

// Redis has users from 6.0 on, whose rights on channels, and Sentinel's own users, came with 6.2. Before, everyone may use every channel.
var beforeChannelRights = regexp.MustCompile(`^Redis server v=6\.[01]\.`)

var redisVersions sync.Map // by path

// version returns the version that the server's program prints.
func (s *RedisServer) version() string {
	s.t.Helper()
	if known, ok := redisVersions.Load(s.path); ok {
		return known.(string)
	}
	out, err := exec.Command(s.path, "--version").Output()
	if err != nil {
		s.t.Fatalf("testserver: %s --version: %v", s.path, err)
	}
	redisVersions.Store(s.path, string(out))
	return string(out)
}

// HasShardChannels reports whether channels can belong to a slot of a Cluster, as they can from Redis 7 on.
func (s *RedisServer) HasShardChannels() bool {
	return !strings.HasPrefix(s.version(), "Redis server v=6.")
}

// allChannels is the right on every channel as users of this server are given it.
func (s *RedisServer) allChannels() string {
	s.t.Helper()
	if beforeChannelRights.MatchString(s.version()) {
		return ""
	}
	return "&* "
}

// needChannelRights skips tests of what this server cannot refuse.
func (s *RedisServer) needChannelRights(config []string) {
	s.t.Helper()
	if !beforeChannelRights.MatchString(s.version()) {
		return
	}
	for _, line := range config {
		if strings.HasPrefix(line, "user ") && (strings.Contains(line, " &") || strings.Contains(line, " resetchannels")) {
			s.t.Skipf("testserver: users have no rights on channels before Redis 6.2: %s", strings.TrimSpace(s.version()))
		}
	}
}
