package redis_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
)

// order is in which order waiters have got a lock.
type order struct {
	mu  sync.Mutex
	got []string
}

func (o *order) add(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, name)
}

// lineUp has the clients wait for a name, in the order of kinds. Each lets go as soon as it has it.
func lineUp(t *testing.T, all map[string]*locker.Client, kinds []string, name string, waiters func() int64, o *order) (done []<-chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	for i, kind := range kinds {
		m := all[kind].Mutex(name)
		done = append(done, async(func() error {
			if err := m.Lock(ctx); err != nil {
				return errors.Join(errors.New(kind), err)
			}
			o.add(kind)
			return m.Unlock(ctx)
		}))
		eventually(t, kind+" waits", func() bool { return waiters() == int64(i+1) })
	}
	return done
}

// Order is promised while the primary holds: after a failover those who listen again first may be first.
func TestFailover_whoWaitsGetsTheLock(t *testing.T) {
	t.Parallel()
	for how, change := range map[string]func(f failover){
		"by hand": func(f failover) { f.byHand("x") },
		"by death": func(f failover) {
			old := f.primary("x")
			old.Kill()
			f.after("x", old)
		},
		"by silence": func(f failover) {
			old := f.primary("x")
			old.Stop()
			f.after("x", old)
		},
	} {
		t.Run(how, func(t *testing.T) {
			if how != "by death" {
				testwait.OnlyInCheck(t, "another way by which the primary becomes another")
			}
			eachFailover(t, func(t *testing.T, f failover) {
				t.Helper()
				ctx := t.Context()
				all := f.contenders(t, 30*time.Second)
				holder := openURL(t, f.url, locker.WithTTL(30*time.Second), locker.WithoutRenewal()).Mutex("x")
				require.NoError(t, holder.Lock(ctx))
				admin := connect(t, f.primary("x").Addr())
				var kinds []string
				for kind := range all {
					kinds = append(kinds, kind)
				}
				var o order
				done := lineUp(t, all, kinds, "x", func() int64 { return admin.ZCard(ctx, keyOf("x")+":queue").Val() }, &o)
				f.inStep("x")
				change(f)
				eventually(t, "the holder lets go", func() bool {
					err := holder.Unlock(ctx)
					if errors.Is(err, locker.ErrNotHeld) {
						return true // a try before has ended the hold, if with an error
					}
					require.NotErrorIs(t, err, locker.ErrLost)
					return err == nil
				})
				for _, d := range done {
					require.NoError(t, awaitLong(t, d))
				}
				assert.ElementsMatch(t, kinds, o.got)
			})
		})
	}
}

// Many contend while the primary is replaced twice. What a failover loses it may lose; everybody gets on, and
// nobody ever gets a token that is not larger than all that came to be known before it asked.
func TestFailover_whileManyTake(t *testing.T) {
	testwait.OnlyInCheck(t, "the conformance suite has histories with failovers")
	t.Parallel()
	eachFailover(t, func(t *testing.T, f failover) {
		t.Helper()
		all := f.contenders(t, 5*time.Second)
		var (
			mu     sync.Mutex
			last   uint64
			counts = map[string]int{}
			stop   = make(chan struct{})
			done   []<-chan error
		)
		for kind, c := range all {
			m := c.Mutex("x")
			done = append(done, async(func() error {
				for {
					select {
					case <-stop:
						return nil
					default:
					}
					mu.Lock()
					known := last
					mu.Unlock()
					ctx, cancel := context.WithTimeout(context.Background(), patient)
					err := m.Lock(ctx)
					cancel()
					if err != nil {
						if errors.Is(err, context.DeadlineExceeded) {
							return errors.Join(errors.New(kind+": waits in vain"), err)
						}
						continue
					}
					token := m.FencingToken()
					mu.Lock()
					last, counts[kind] = max(last, token), counts[kind]+1
					mu.Unlock()
					if token != 0 && token <= known {
						return errors.New(kind + ": a token that is not larger than an earlier one")
					}
					_ = m.Unlock(context.Background())
				}
			}))
		}
		getOn := func(when string) {
			mu.Lock()
			clear(counts)
			mu.Unlock()
			for kind := range all {
				testwait.Patience(time.Minute).Until(t, when+": "+kind+" gets on", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return counts[kind] > 3
				})
			}
		}
		getOn("before")
		f.byHand("x")
		getOn("by hand")
		old := f.primary("x")
		old.Kill()
		f.after("x", old)
		getOn("by death")
		close(stop)
		for _, d := range done {
			require.NoError(t, awaitLong(t, d))
		}
	})
}
