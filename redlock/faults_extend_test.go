package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// forget has servers restart empty.
func forget(stages ...*stage) {
	for _, s := range stages {
		s.edit("x", (*register).forget)
	}
}

// only has one verb take a path of its own.
func (s *stage) only(v verb, p path) {
	s.on(func(other verb, _ string) path {
		if other == v {
			return p
		}
		return path{}
	})
}

// taken is a lease on x that the nodes have which are reachable.
func taken(t *testing.T, d *Driver, unreachable ...*stage) *lease {
	t.Helper()
	for _, s := range unreachable {
		s.always(path{err: errRefused})
	}
	l, err := d.Acquire(t.Context(), askFor("x"))
	require.NoError(t, err)
	synctest.Wait()
	for _, s := range unreachable {
		s.on(nil)
	}
	return l.(*lease)
}

// A majority has lost the lock, though one answers late and one that might have had it is unreachable.
func TestFaults_extendTellsALossFromAnOutage(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := taken(t, d)
		forget(stages[0], stages[2])
		stages[1].always(path{err: errRefused})
		stages[2].always(path{back: 50 * time.Millisecond})
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost)
	})
}

// So does a node that answers that another has the lock, which this attempt had asked it for.
func TestFaults_extendCountsALateDenial(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[2].edit("x", func(r *register) {
			*r = register{owner: 9, known: true, last: 1, until: time.Now().Add(ttl).UnixNano()}
		})
		stages[2].always(path{back: 100 * time.Millisecond})
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		forget(stages[1])
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost)
	})
}

func TestFaults_extendWithANodeThatJoinsAndOneUnreachable(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := taken(t, d, stages[2])
		stages[1].always(path{err: errRefused})
		require.NoError(t, l.Extend(t.Context(), ttl))
		assert.Equal(t, ttl, l.Validity())
		assert.Equal(t, []int{2, 0, 0}, []int{stages[2].counted(propose), stages[2].counted(extendIt), stages[2].counted(raiseIt)})
	})
}

// What a node has granted to the attempt lasts from then, and an Extend that begins before the answer extends it.
func TestFaults_extendOfAGrantOnItsWay(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[2].only(propose, path{back: 300 * time.Millisecond})
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		stages[1].always(path{err: errRefused})
		require.NoError(t, l.Extend(t.Context(), ttl))
		assert.Equal(t, 1, stages[2].counted(extendIt))
	})
}

// Answers that come when the lease has expired extend nothing, whatever the nodes say.
func TestFaults_extendAnsweredTooLate(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := taken(t, d)
		time.Sleep(ttl - 50*time.Millisecond)
		for _, s := range stages {
			s.only(extendIt, path{back: 100 * time.Millisecond})
		}
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost)
		synctest.Wait()
		assert.False(t, stages[0].has("x"))
	})
}

func TestFaults_extendMovesNoDeadlineBack(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := taken(t, d)
		for _, s := range stages {
			s.always(path{back: 400 * time.Millisecond})
		}
		first := make(chan error, 1)
		go func() { first <- l.Extend(context.Background(), ttl) }()
		time.Sleep(100 * time.Millisecond)
		for _, s := range stages {
			s.on(nil)
		}
		require.NoError(t, l.Extend(t.Context(), ttl))
		require.NoError(t, <-first)
		assert.Equal(t, ttl-300*time.Millisecond, l.Validity())
	})
}

// Two Extends hear from a node, late, that it has lost the lock. It is asked for it once, when a majority is known to
// have it, and what it says later of the former lock does not hide the new one.
func TestFaults_rejoinOnceTheAnswerIsThere(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := taken(t, d)
		require.NoError(t, l.Extend(t.Context(), ttl), "from which all nodes count")
		synctest.Wait()
		forget(stages[2])
		stages[2].always(path{back: 300 * time.Millisecond})
		require.NoError(t, l.Extend(t.Context(), ttl))
		stages[2].only(extendIt, path{back: 100 * time.Millisecond})
		require.NoError(t, l.Extend(t.Context(), ttl))
		time.Sleep(200 * time.Millisecond)
		assert.True(t, stages[2].has("x"))
		time.Sleep(200 * time.Millisecond)
		assert.Equal(t, 2, stages[2].counted(propose))
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		assert.False(t, stages[2].has("x"))
	})
}

func TestFaults_rejoinWhileARejoinIsOut(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := taken(t, d)
		require.NoError(t, l.Extend(t.Context(), ttl), "from which all nodes count")
		synctest.Wait()
		forget(stages[2])
		stages[2].only(propose, path{there: 200 * time.Millisecond})
		for _, s := range stages[:2] {
			s.always(path{back: 50 * time.Millisecond})
		}
		for range 2 {
			go func() { assert.NoError(t, l.Extend(context.Background(), ttl)) }()
		}
		time.Sleep(time.Second)
		assert.Equal(t, 2, stages[2].counted(propose))
		require.NoError(t, l.Release(t.Context()))
	})
}

// A node is not asked for the lock again while it is not known that a majority has it.
func TestFaults_noRejoinWithoutAMajority(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := taken(t, d)
		forget(stages[0])
		stages[1].always(path{err: errRefused})
		stages[2].always(path{err: errRefused})
		require.Error(t, l.Extend(t.Context(), ttl))
		synctest.Wait()
		assert.Equal(t, 1, stages[0].counted(propose))
	})
}

// An Extend that is overtaken by a Release does not count what joins after that.
func TestFaults_extendDuringAReleaseIsNoSuccess(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := taken(t, d, stages[2])
		stages[1].only(extendIt, hung)
		stages[2].always(path{there: 50 * time.Millisecond})
		extended := make(chan error, 1)
		go func() { extended <- l.Extend(context.Background(), ttl) }()
		time.Sleep(time.Millisecond)
		require.NoError(t, l.Release(t.Context()))
		require.Error(t, <-extended)
		requests := total(stages)
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost)
		synctest.Wait()
		assert.Equal(t, requests, total(stages))
		assert.False(t, stages[2].has("x"))
	})
}

// What one lease of a batch has at a node under a smaller token is raised all the same.
func TestFaults_extendAllRaises(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		for _, s := range stages[:2] {
			s.edit("x", func(r *register) { *r = register{known: true, last: ahead} })
		}
		stages[2].only(propose, path{mute: true})
		l := taken(t, d)
		time.Sleep(time.Second)
		stages[2].on(nil)
		other, err := d.Acquire(t.Context(), askFor("y"))
		require.NoError(t, err)
		synctest.Wait()
		for _, err := range d.ExtendAll(t.Context(), []driver.Lease{l, other, l}, ttl) {
			require.NoError(t, err)
		}
		synctest.Wait()
		stages[2].edit("x", func(r *register) { assert.Equal(t, l.Token(), r.last) })
	})
}

// curt has nothing to say.
type curt struct{ *stageClient }

func (c curt) ExtendAll(context.Context, []driver.Lease, time.Duration) []error { return nil }

func TestFaults_extendAllWithTooFewAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []driver.Driver
		for _, s := range newStages(3) {
			nodes = append(nodes, curt{&stageClient{stage: s}})
		}
		d, err := NewDriver(nodes)
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		l := taken(t, d)
		for _, err := range d.ExtendAll(t.Context(), []driver.Lease{l, l}, ttl) {
			require.ErrorIs(t, err, errIncomplete)
		}
	})
}

// The attempt fails as soon as a node that was to be raised has failed.
func TestFaults_raiseThatFails(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[0].edit("x", func(r *register) { *r = register{known: true, last: uint64(time.Now().Add(time.Hour).UnixMicro())} })
		stages[1].only(raiseIt, path{err: errRefused})
		stages[2].always(path{err: errRefused})
		start := time.Now()
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.ErrorIs(t, err, errRefused)
		assert.Zero(t, time.Since(start))
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		assert.False(t, stages[1].has("x"))
	})
}

// Grants that come in after the attempt was given up are given back, and not raised.
func TestFaults_nothingIsRaisedForAnAttemptGivenUp(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for i, s := range stages {
			s.edit("x", func(r *register) {
				*r = register{known: true, last: uint64(time.Now().Add(time.Duration(i) * time.Hour).UnixMicro())}
			})
			s.only(propose, path{back: time.Duration(i) * 50 * time.Millisecond})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		l, err := d.Acquire(ctx, askFor("x"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		for _, s := range stages {
			assert.False(t, s.has("x"))
			assert.Zero(t, s.counted(raiseIt))
		}
	})
}
