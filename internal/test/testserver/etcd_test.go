package testserver

import (
	"os"
	"testing"
)

func putEtcd(t *testing.T, s *EtcdServer, key, value string) {
	t.Helper()
	if err := s.call("kv/put", map[string][]byte{"key": []byte(key), "value": []byte(value)}, nil); err != nil {
		t.Errorf("put %s: %v", key, err)
	}
}

func wantEtcd(t *testing.T, s *EtcdServer, key, want string) {
	t.Helper()
	var reply struct{ KVs []struct{ Value []byte } }
	if err := s.call("kv/range", map[string][]byte{"key": []byte(key)}, &reply); err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	got := ""
	for _, kv := range reply.KVs {
		got += string(kv.Value)
	}
	if got != want {
		t.Errorf("%s is %q, want %q", key, got, want)
	}
}

func TestEtcd_dataSurvivesAKillAndNotTheTest(t *testing.T) {
	onlyInCheck(t)
	var data string
	t.Run("server", func(t *testing.T) {
		s := Etcd(t)
		data = s.data
		addr := s.Addr()
		if want := "etcd://" + addr; s.URL() != want {
			t.Errorf("URL is %s, want %s", s.URL(), want)
		}
		putEtcd(t, s, "k", "v")
		s.Kill()
		if accepts(addr) {
			t.Error("the server still accepts connections after Kill")
		}
		s.Restart()
		if s.Addr() != addr {
			t.Errorf("address is %s after Restart, was %s", s.Addr(), addr)
		}
		wantEtcd(t, s, "k", "v")
		s.Terminate()
		s.Restart()
		wantEtcd(t, s, "k", "v")
	})
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("after the test %s is still there: %v", data, err)
	}
}
