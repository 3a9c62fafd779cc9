package postgres_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	_ "github.com/go-locker/locker/examples/postgres"
	"github.com/go-locker/locker/internal/test/testwait"
)

const urlEnv = "LOCKER_POSTGRES_URL"

func TestMain(m *testing.M) {
	conformance.Serve(func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		return open(t, os.Getenv(urlEnv), ttl, false).Mutex(name)
	})
	goleak.VerifyTestMain(m)
}

// The suite on a real server, each Locker on a pool of its own.
func TestConformance(t *testing.T) {
	testwait.OnlyInCheck(t, "it takes a minute, and what is of this driver alone has tests of its own")
	s := startServer(t)
	h := conformance.Harness{
		TTL: 2 * time.Second, // a Locker of its own has a connection to make, and the server a process, within half of it
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return open(t, url(s.Addr()), ttl, false).Mutex(name)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			c := open(t, url(s.Addr()), ttl, renew)
			return func(name string) locker.Locker { return c.Mutex(name) }
		},
	}
	h.Deviations = map[string]string{
		"a hold lasts though the server loses its data":                        "the lock is a row, and is gone with it",
		"a random history is that of one lock though servers lose their data":  "the lock is a row, and is gone with it",
		"a hold lasts though the server's clock jumps forward":                 "a row expires by the server's clock",
		"a hold expires though the server's clock jumps back":                  "a row expires by the server's clock",
		"a random history is that of one lock though the server's clock jumps": "a row expires by the server's clock",
	}
	h.Faults = faults(s)
	h.Faults.Revoke = func(t conformance.TB, name string) { revoke(t, url(s.Addr()), name) }
	h.Faults.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return open(t, url(via(s.Addr())), ttl, false).Mutex(name)
	}
	h.Faults.Process = func(conformance.TB) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), urlEnv+"="+url(s.Addr()))
		return cmd
	}
	conformance.Run(t, h)
}

func open(t conformance.TB, url string, ttl time.Duration, renew bool) *locker.Client {
	c, err := locker.Open(t.Context(), fmt.Sprintf("%s&ttl=%v&renew=%t", url, ttl, renew))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// revoke is what an operator may do.
func revoke(t conformance.TB, url, name string) {
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), "DELETE FROM locker_locks WHERE name = $1", []byte("locker:"+name)); err != nil {
		t.Fatalf("delete: %v", err)
	}
}
