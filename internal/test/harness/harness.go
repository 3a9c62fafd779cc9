// Package harness is what the Harnesses of the adapters have in common: Lockers of a URL, in this process and in others,
// and the faults of real servers.
package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/conformance/program"
)

// urlEnv is the URL, in the processes that a Harness starts.
const urlEnv = "LOCKER_HARNESS_URL"

// Serve comes first in TestMain: it is program.Serve for what ForURL returns. Of a backend of ours no
// trial may be in doubt, unless the command line says how many.
func Serve() {
	if err := flag.Set("conformance.doubts", "0"); err != nil {
		panic(err)
	}
	program.Serve(func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		return mutexOf(open(t, os.Getenv(urlEnv), ttl, false), name)
	})
}

// ForURL is a Harness without faults of servers. In format, which ends with a query, "%s" stands for the servers at
// addrs; ttl is the Harness's.
func ForURL(ttl time.Duration, format string, addrs []string) conformance.Harness {
	to := func(addrs []string) string { return fmt.Sprintf(format, strings.Join(addrs, ",")) }
	url := to(addrs)
	h := conformance.Harness{
		TTL: ttl,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return open(t, url, ttl, false).Mutex(name)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			c := open(t, url, ttl, renew)
			return func(name string) locker.Locker { return c.Mutex(name) }
		},
		RW: func(t conformance.TB, name string, ttl time.Duration) conformance.RWLocker {
			return open(t, url, ttl, false).RWMutex(name)
		},
	}
	through := func(t conformance.TB, ttl time.Duration, via func(string) string, renew bool) *locker.Client {
		ways := make([]string, len(addrs))
		for i, addr := range addrs {
			ways[i] = via(addr)
		}
		return open(t, to(ways), ttl, renew)
	}
	h.Faults.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return mutexOf(through(t, ttl, via, false), name)
	}
	h.Faults.ThroughClient = func(t conformance.TB, ttl time.Duration, renew bool, via func(string) string) func(string) locker.Locker {
		c := through(t, ttl, via, renew)
		return func(name string) locker.Locker { return c.Mutex(name) }
	}
	if runtime.GOOS != "windows" { // which stops no processes
		h.Faults.Process = func(conformance.TB) *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), urlEnv+"="+url)
			return cmd
		}
	}
	return h
}

// mutexOf is an RWMutex, if the backend has any, so that the suite's scenarios of shares have faults, too.
func mutexOf(c *locker.Client, name string) locker.Locker {
	if rw := c.RWMutex(name); !errors.Is(rw.Unlock(context.Background()), locker.ErrUnsupported) {
		return rw
	}
	return c.Mutex(name)
}

// open makes a Client on connections of its own. Its url ends with a query.
func open(t conformance.TB, url string, ttl time.Duration, renew bool) *locker.Client {
	c, err := locker.Open(t.Context(), fmt.Sprintf("%s&ttl=%v&renew=%t", url, ttl, renew))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Dialer is for Faults.Through where clients find out addresses by themselves: of addrs, and no others.
func Dialer(addrs []string, via func(string) string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	ways := map[string]string{}
	for _, addr := range addrs {
		ways[addr] = via(addr)
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		way, ok := ways[addr]
		if !ok {
			return nil, fmt.Errorf("%s is no server of ours", addr)
		}
		var d net.Dialer
		return d.DialContext(ctx, network, way)
	}
}
