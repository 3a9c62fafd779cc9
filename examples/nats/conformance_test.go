//go:build unix

package natslock_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

func TestConformance(t *testing.T) {
	p := start(t)
	via := func(t conformance.TB, name string, ttl time.Duration, address func(string) string) locker.Locker {
		return open(t, address(p.addr), locker.WithTTL(ttl), locker.WithoutRenewal()).Mutex(name)
	}
	h := conformance.Harness{
		TTL: time.Second,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return via(t, name, ttl, func(address string) string { return address })
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			opts := []locker.Option{locker.WithTTL(ttl)}
			if !renew {
				opts = append(opts, locker.WithoutRenewal())
			}
			c := open(t, p.addr, opts...)
			return func(name string) locker.Locker { return c.Mutex(name) }
		},
		Faults: conformance.Faults{
			StopServer: func(t conformance.TB) func() {
				p.signal(t, syscall.SIGSTOP)
				return func() { p.signal(t, syscall.SIGCONT) }
			},
			KillServer: func(t conformance.TB) func() {
				p.kill()
				return func() { p.run(t) }
			},
			WipeServer: func(t conformance.TB) func() {
				p.kill()
				p.wipe()
				return func() { p.run(t) }
			},
			Revoke:  p.revoke,
			Through: via,
			Process: func(conformance.TB) *exec.Cmd {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), "NATSLOCK_ADDR="+p.addr)
				return cmd
			},
		},
		Sometimes: map[string]string{
			"an Extend whose reply was lost leaves the hold as it was": "nats.go lets a request wait for its answer that was sent on a connection which has broken",
		},
		Deviations: map[string]string{
			"a hold lasts though the server loses its data":                       "the bucket has the holds, and one replica",
			"a random history is that of one lock though servers lose their data": "the bucket has the holds, and one replica",
		},
	}
	if os.Getenv("LOCKER_NIGHTLY") == "" {
		h.Faults, h.Deviations = conformance.Faults{Revoke: p.revoke, Through: via}, nil // the others take a minute and a half
	}
	conformance.Run(t, h)
}
