package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/election"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/locktest"
	"github.com/go-locker/locker/memory"
)

func TestObserve_tellsOfEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watched := locktest.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		var seen []election.Leader
		var errs []error
		done := make(chan struct{})
		go func() {
			defer close(done)
			for leader, err := range election.New(watched.Client, "leader").Observe(ctx, time.Second) {
				if err != nil {
					errs = append(errs, err)
					assert.Zero(t, leader)
					continue
				}
				seen = append(seen, leader)
			}
		}()
		time.Sleep(time.Minute)
		a := campaign(t, "a", nil)
		synctest.Wait()
		first := a.Term()
		b := campaign(t, "b", nil)
		time.Sleep(time.Minute)
		require.NoError(t, a.stop())
		time.Sleep(time.Minute)
		second := b.Term()
		time.Sleep(time.Second / 2) // between two looks
		watched.Down()
		time.Sleep(3 * time.Second)
		watched.Up()
		time.Sleep(time.Minute)
		require.NoError(t, b.stop())
		time.Sleep(time.Minute)
		cancel()
		<-done
		assert.Equal(t, []election.Leader{{}, {"a", first}, {"b", second}, {"b", second}, {}}, seen, "after an outage it is told again")
		require.Len(t, errs, 3)
		require.ErrorIs(t, errs[0], locktest.ErrUnreachable)
	})
}

// scripted is a Driver that tells of these terms, one after the other.
type scripted struct {
	driver.Driver
	terms []uint64
}

func (s *scripted) Inspect(context.Context, string) (driver.State, error) {
	token := s.terms[0]
	if len(s.terms) > 1 {
		s.terms = s.terms[1:]
	}
	return driver.State{Held: token != 0, Token: token}, nil
}

// A replica, or a follower, may answer what was the case a while ago.
func TestObserve_neverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testwait.Closed(locker.New(&scripted{memory.NewDriver(), []uint64{3, 7, 3, 7, 0, 7, 5, 9, 7, 11}}))(t)
		var seen []uint64
		for leader, err := range election.New(c, "leader").Observe(t.Context(), time.Second) {
			require.NoError(t, err)
			if seen = append(seen, leader.Term); leader.Term == 11 {
				break
			}
		}
		assert.Equal(t, []uint64{3, 7, 0, 7, 9, 11}, seen)
	})
}

func TestObserve_endsWhereThereIsNothingToSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unsupported := testwait.Closed(locker.New(struct{ driver.Driver }{memory.NewDriver()}))(t) // no Operator
		closed := locktest.New(t)
		require.NoError(t, closed.Close())
		for c, want := range map[*locker.Client]error{unsupported: locker.ErrUnsupported, closed.Client: locker.ErrClosed} {
			var errs []error
			for _, err := range election.New(c, "leader").Observe(t.Context(), time.Second) {
				errs = append(errs, err)
			}
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], want)
		}
	})
}

func TestObserve_atNoInterval(t *testing.T) {
	for leader, err := range election.New(locktest.New(t).Client, "leader").Observe(t.Context(), 0) {
		require.ErrorContains(t, err, "intervals of 0s")
		assert.Zero(t, leader)
	}
}
