package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/kills"
	"github.com/go-locker/locker/bench/internal/servertest"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestMain(m *testing.M) {
	kills.Serve(libraries()) // as in main
	os.Exit(m.Run())
}

var brief = []string{
	"-rounds", "1", "-blocks", "2", "-block", "10", "-long-rounds", "1", "-waiters", "3", "-clients", "2",
	"-duration", "600ms", "-warm-up", "300ms", "-quiet",
}

func TestRun_measuresEveryLibraryOnRealServers(t *testing.T) {
	testserver.Need(t, "etcd", "zookeeper-server")
	r, out, charts := servertest.Run[Results](t, run, append(brief, "-only", "pairs,contended")...)
	require.Len(t, r.Pairs, len(libraries()))
	for i, l := range libraries() {
		p := r.Pairs[i]
		assert.Equal(t, l.Name, p.Library)
		assert.Equal(t, 20, p.Samples, "%s: pairs", l.Name)
		assert.GreaterOrEqual(t, p.PairP50Us, max(p.LockP50Us, p.UnlockP50Us), "%s: both together", l.Name)
		assert.GreaterOrEqual(t, p.Load.Sent, int64(2*p.LoadOf), "%s: a request to take and one to give", l.Name)
		assert.LessOrEqual(t, p.Load.Traffic.RoundTrips, p.Load.Sent, "%s: round trips", l.Name)
		assert.GreaterOrEqual(t, p.Load.Traffic.RoundTrips, int64(2*p.LoadOf), "%s: round trips", l.Name)
		assert.Greater(t, p.Load.Traffic.BytesSent, 20*p.Load.Sent, "%s: bytes sent", l.Name)
		assert.Greater(t, p.Load.Traffic.BytesReceived, 16*p.Load.Sent, "%s: bytes received", l.Name)
		assert.Positive(t, p.Load.Client.Allocations, "%s: allocations", l.Name)
		assert.Contains(t, out, "\n| "+l.Name+" |")
	}
	assert.Equal(t, []string{"consensus-1-acquisitions.svg", "consensus-1-requests.svg"}, charts)
	for _, c := range r.Contended {
		assert.Equal(t, 2, c.Clients, "%s: clients", c.Library)
		assert.Positive(t, c.Acquisitions, "%s: acquisitions", c.Library)
		assert.GreaterOrEqual(t, c.Load.Sent, int64(2*c.Acquisitions-3), "%s: requests", c.Library)
		assert.Zero(t, c.Errors, "%s: %s", c.Library, c.Error)
		assert.Zero(t, c.Overlaps, "%s: overlaps", c.Library)
		assert.Contains(t, out, "\n| 3 | "+c.Library+" |")
	}
	locks := 0
	for _, s := range systems {
		locks += len(s.locks())
	}
	assert.Len(t, r.Contended, locks)
}

func TestRun_killsProcesses(t *testing.T) {
	testserver.Need(t, "etcd", "zookeeper-server")
	seen := map[string]bool{}
	// Where a machine stands still for as long as a session lives, the holder has lost the lock, and says so.
	for range 3 {
		r, out, _ := servertest.Run[Results](t, run,
			"-only", "kills", "-kill-rounds", "1", "-kill-waiters", "4", "-kill-ttl", "5s", "-clients", "2")
		require.Len(t, r.Kills, 8, "two recipes and ours, twice")
		for _, k := range r.Kills {
			if k.Error == "" && (k.Who == kills.Waiter || k.Ms > k.TTLMs/3) { // a killed holder's session has to end first
				seen[k.Library+", "+k.Who] = true
			}
			assert.Contains(t, out, "\n| "+k.Library+" |")
		}
		if len(seen) == len(r.Kills) {
			return
		}
	}
	t.Errorf("measured as it should be: %v; want each of two recipes and ours, twice", seen)
}

// What is pipelined has to show, and what is not.
func TestPairs_roundTripsAreWaitsForAnswers(t *testing.T) {
	testserver.Need(t, "zookeeper-server")
	r, _, _ := servertest.Run[Results](t, run,
		append(brief, "-only", "pairs", "-libraries", "zookeeper bare serial,zookeeper zk.Lock")...)
	require.Len(t, r.Pairs, 2)
	for _, p := range r.Pairs {
		assert.EqualValues(t, 3*p.LoadOf, p.Load.Sent, p.Library)
		assert.EqualValues(t, 3*p.LoadOf, p.Load.Traffic.RoundTrips, p.Library)
	}
}

func TestSystems_haveWhatTheyCompareWith(t *testing.T) {
	for _, s := range systems {
		for _, name := range []string{s.floor, s.peer} {
			_, err := s.libraries.Named(name)
			require.NoError(t, err)
		}
		for _, l := range s.libraries {
			assert.Equal(t, s.name, systemOf(l.Name).name)
		}
		for _, l := range s.locks() {
			assert.NotContains(t, l.Name, "bare")
		}
	}
}

func TestSessions_areOneForEachWaiterOfAName(t *testing.T) {
	testserver.Need(t, "etcd")
	on, err := systems[0].start(t.Context(), 1)
	require.NoError(t, err)
	defer on.Stop()
	c, err := mustName(t, "etcd concurrency.Mutex").Measure(t.Context(), on, contend.Cell{
		Name: "x", Waiters: 4, Clients: 1, Hold: time.Millisecond, Duration: 500 * time.Millisecond,
	})
	require.NoError(t, err)
	assert.Zero(t, c.Overlaps, "two Mutexes of one session both hold")
}

func mustName(t *testing.T, name string) contend.Library {
	t.Helper()
	some, err := libraries().Named(name)
	require.NoError(t, err)
	return some[0]
}
