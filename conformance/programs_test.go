package conformance_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/conformance/program"
	"github.com/go-locker/locker/internal/stdio"
	"github.com/go-locker/locker/internal/test/testwait"
)

const (
	programClaims = "LOCKER_TEST_CLAIMS" // has a process be a program that claims so much
	programStart  = "LOCKER_TEST_START"  // how long it takes to say hello
)

// everything is what a program can claim, but lost and deadline.
const everything = "lock,try,unlock,extend,token,cancel,expire,share,renew"

func serveProgram() {
	claims := os.Getenv(programClaims)
	if claims == "" {
		return
	}
	address, flaw := os.Getenv(stdio.AddressEnv), os.Getenv(servedFlaw)
	if after, err := time.ParseDuration(os.Getenv(programStart)); err == nil {
		time.Sleep(after)
	}
	h := conformance.Harness{New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		return dial(t, address, flaw, ttl, false)(name)
	}}
	if strings.Contains(claims, "share") {
		h.Client = func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			of := dial(t, address, flaw, ttl, renew)
			return func(name string) locker.Locker { return of(name) }
		}
	}
	h.TTL = memoryTTL
	if err := program.ServeLocks(os.Stdin, &claiming{os.Stdout, strings.Split(claims, ",")}, "", h); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// claiming writes what a program answers, whose first line claims no more than that.
type claiming struct {
	to     io.Writer
	claims []string // nil after the first line
}

func (c *claiming) Write(line []byte) (int, error) {
	if c.claims != nil {
		var hello map[string]any
		if err := json.Unmarshal(line, &hello); err != nil {
			return 0, err
		}
		hello["capabilities"] = c.claims
		c.claims = nil
		return len(line), json.NewEncoder(c.to).Encode(hello)
	}
	return c.to.Write(line)
}

// foreverTB is the TB of what lasts as long as this process.
type foreverTB struct{}

func (foreverTB) Helper()                        {}
func (foreverTB) Logf(string, ...any)            {}
func (foreverTB) Cleanup(func())                 {}
func (foreverTB) Context() context.Context       { return context.Background() }
func (foreverTB) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// aProgram is the Harness of a program whose locks have a flaw, or none, that claims so much. Its
// caller ends its processes.
func aProgram(flaw, claims string) conformance.Harness {
	s := newServer(flaw)
	h := program.Exec(foreverTB{}, program.Program{
		TTL:     memoryTTL,
		Address: s.use(foreverTB{}),
		Command: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), programClaims+"="+claims, servedFlaw+"="+flaw)
			return cmd
		},
	})
	through, process := h.Faults.Through, h.Faults.Process
	h.Faults = s.faults()
	h.Faults.Through, h.Faults.Process = through, process
	return h
}

// programOf is aProgram for a test, with which its processes end.
func programOf(t testing.TB, flaw, claims string) conformance.Harness {
	h := aProgram(flaw, claims)
	t.Cleanup(func() { h.Program.Pool.End() })
	return h
}

// A flaw is seen through the pipe as well, whatever the program claims beside the two operations
// that each has to.
func TestProgram_withAFlawIsCaught(t *testing.T) {
	for _, m := range []struct{ flaw, claims, killer string }{
		{"owner is the process", everything, "a held lock is not granted to another process"},
		{"owner is the process", "try,unlock", "a held lock is not granted to another process"},
		{"owner is the client", everything, "a held lock is not granted to the same client"},
		{"TTL in whole seconds", everything, "a hold expires after its TTL"},
		{"deletes whatever is there", everything, "Unlock after a take-over leaves the new hold alone"},
		{"deletes whatever is there", "try,unlock,expire", "Unlock after a take-over leaves the new hold alone"},
		{"looks, and takes a little later", "try,unlock", "many processes exclude one another"},
	} {
		t.Run(m.flaw+" "+m.claims, func(t *testing.T) {
			t.Parallel()
			seen := try(find(t, m.killer), programOf(t, m.flaw, m.claims))
			require.Error(t, seen)
			assert.False(t, conformance.IsSkip(seen), "%v", seen)
		})
	}
}

// What a program does not claim is skipped, and the reason says so.
func TestProgram_thatClaimsLittleIsAskedForLittle(t *testing.T) {
	h := programOf(t, "", "try,unlock")
	for scenario, why := range map[string]string{
		"Extend keeps a hold past its TTL":                    "the program does not claim extend",
		"a hold expires after its TTL":                        "the program does not claim expire",
		"tokens rise from process to process":                 "the program does not claim token",
		"Lock refuses a ctx that has ended":                   "the program does not claim cancel",
		"any name of UTF-8 can be locked":                     "the program does not claim share",
		"a held lock is not granted to the same client":       "the Harness has no Client",
		"Lost fires no later than Deadline":                   "the program does not claim expire",
		"Deadline is at most one TTL away, and at least half": "the Locker has no Deadline",
		"no goroutine outlives Close":                         "the lock is a program",
		"readers share the lock":                              "the Harness has no RW",
	} {
		seen := try(find(t, scenario), h)
		assert.True(t, conformance.IsSkip(seen), "%s: %v", scenario, seen)
		assert.ErrorContains(t, seen, why, scenario)
	}
}

// A program without cancel is sent one request at a time: Lockers that share it wait for each
// other.
func TestProgram_thatTakesOneRequestAtATimeServesAllWhoWait(t *testing.T) {
	require.NoError(t, try(find(t, "everyone who waits is served"), programOf(t, "", "lock,unlock,expire,share")))
}

// limit_ms of an extend may be ignored. What an Extend leaves that took as long as the hold cannot
// be seen. A program that claims cancel has to give it up.
func TestProgram_thatHeedsNoLimitOfExtend(t *testing.T) {
	t.Cleanup(conformance.Trials(1))
	s := find(t, "an Extend whose reply was lost leaves the hold as it was")
	seen := try(s, programOf(t, "Extend heeds no limit", "lock,unlock,extend,token,expire"))
	assert.True(t, conformance.IsSkip(seen), "%v", seen)
	require.ErrorContains(t, seen, "limit_ms")
	seen = try(s, programOf(t, "Extend heeds no limit", everything))
	assert.ErrorContains(t, seen, "its ctx ended after 100ms")
}

func TestExec_tellsWhatIsNotKnown(t *testing.T) {
	assert.Equal(t, []string{"teleport"}, programOf(t, "", "try,unlock,teleport").Program.Hello.Unknown())
}

// What is said of a program has the words of the protocol, and what it said itself its own.
func TestExamine_ofAProgramHasTheProtocolsWords(t *testing.T) {
	s := find(t, "TryLock of a held lock says ErrHeld")
	s = s.Checking(func(conformance.TB, conformance.Harness) error {
		return errors.New(`B's Unlock said nil, error "nil \"ErrLost\""; want ErrNotHeld; then redis: nil; A's Lock: nil; want ErrHeld`)
	})
	r := conformance.Examine(t, s, programOf(t, "", everything))
	assert.Equal(t, "TryLock makes one attempt, and does not wait for the holder. It returns an error that matches held if the lock is another's.", r.Promise)
	assert.Equal(t, `B's Unlock said ok, error "nil \"ErrLost\""; want not-held; then redis: nil; A's Lock: ok; want held`, r.Seen)
	assert.Equal(t, s.Promise, conformance.Examine(t, s, conformance.Harness{}).Promise, "a lock in Go")
}

// How long a program takes to start is no part of what is judged, wherever in its story a scenario
// starts one, and though others take those that are ready.
func TestProgram_thatStartsSlowlyIsNotBlamed(t *testing.T) {
	t.Setenv(programStart, cmp.Or(os.Getenv(programStart), "1s"))
	h := programOf(t, "", everything)
	// After it the server grants nothing for the longest TTL that was asked for.
	h.Faults.WipeServer = nil
	if testwait.Thorough() {
		conformance.Run(t, h)
		return
	}
	var all sync.WaitGroup
	for _, name := range []string{
		"many processes exclude one another", "a counter guarded by tokens loses no update", "a take that arrives late leaves nothing behind",
		"everyone who waits is served", "Lock returns soon after the deadline of ctx while it waits", "two Lockers of one odd name exclude each other",
		"an Unlock that arrives late leaves the new hold alone", "a hold does not expire before its TTL",
	} {
		s := find(t, name)
		all.Go(func() { assert.NoError(t, try(s, h), name) })
	}
	all.Wait()
}

// BenchmarkPipe measures what a call of a program costs that asks no server:
// docs/evidence/judge-any-language.md has the result.
func BenchmarkPipe(b *testing.B) {
	h := programOf(b, "", everything)
	l := h.New(b, "pipe", time.Minute)
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		start := time.Now()
		l.FencingToken()
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/median")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs/p99")
}
