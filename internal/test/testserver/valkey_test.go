package testserver

import (
	"strings"
	"testing"
)

func TestValkey(t *testing.T) {
	onlyInCheck(t)
	s := Valkey(t, RedisTLS())
	if text, err := s.doText("INFO", "server"); err != nil || !strings.Contains(text, "server_name:valkey") {
		t.Errorf("INFO says %v, and not that this is Valkey:\n%s", err, text)
	}
	s.Restart()
	replica := Valkey(t, RedisReplicaOf(s))
	wantReply(t, s, "SET k v", "OK")
	replica.WaitSynced(s)
	wantReply(t, replica, "GET k", "v")
}

func TestValkey_programMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CI", "true")
	t.Chdir(t.TempDir()) // outside the repository's .bin
	r := &recorder{TB: t}
	r.run(func() { Valkey(r) })
	defer r.cleanUp()
	if r.fatal != "" || !strings.Contains(r.skip, "valkey-server is not here") {
		t.Errorf("Fatalf said %q, Skipf %q; want a skip that says why", r.fatal, r.skip)
	}
}
