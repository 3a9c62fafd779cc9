// Package kills measures for how long a lock is nobody's after a process was killed (SIGKILL): the one that held it, or
// the one that was the first to wait.
package kills

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/report"
	"github.com/go-locker/locker/bench/internal/stats"
	"github.com/go-locker/locker/bench/internal/wire"
)

// Kill is one that was made.
type Kill struct {
	Library string  `json:"library"`
	Round   int     `json:"round"`
	Who     string  `json:"who"` // Holder or Waiter
	Waiters int     `json:"waiters"`
	TTLMs   float64 `json:"ttlMs"`

	// Ms is how long it took until another held the lock: from the kill of the holder, or from the Unlock of
	// another process after the first of its waiters was killed.
	Ms    float64 `json:"ms"`
	Error string  `json:"error,omitempty"`
}

// Who is killed.
const (
	Holder = "holder"
	Waiter = "waiter"
)

// Plan is how kills are measured.
type Plan struct {
	Libraries contend.Libraries
	Rounds    int
	Waiters   int // that are left alive
	Clients   int // over which they are spread, at most
	TTL       time.Duration
}

// settle is how long those who are to wait are given to begin.
const settle = time.Second

// Measure returns what each library came to in each round. All of them wait at the same time: they do next to nothing.
func (plan Plan) Measure(ctx context.Context, addrs []string, progress io.Writer) ([]Kill, error) {
	var all []Kill
	for round := range plan.Rounds {
		for _, who := range []string{Holder, Waiter} {
			kills := make([]Kill, len(plan.Libraries))
			var wg sync.WaitGroup
			for i, l := range plan.Libraries {
				kills[i] = Kill{
					Library: l.Name, Round: round, Who: who, Waiters: plan.Waiters, TTLMs: stats.Milliseconds(plan.TTL),
				}
				wg.Go(func() { plan.measure(ctx, addrs, l, &kills[i]) })
			}
			wg.Wait()
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			for _, k := range kills {
				fmt.Fprintf(progress, "round %d of %d: %s killed, %s: %.0f ms %s\n",
					round+1, plan.Rounds, who, k.Library, k.Ms, k.Error)
			}
			all = append(all, kills...)
		}
	}
	return all, nil
}

func (plan Plan) measure(ctx context.Context, addrs []string, l contend.Library, k *Kill) {
	l.TTL = plan.TTL
	clients, closeAll, err := l.OpenClients(min(plan.Clients, plan.Waiters)+1, addrs, wire.NewTally())
	if err == nil {
		defer closeAll()
		name := l.LockName("killed", k.Who, k.Round)
		var d time.Duration
		d, err = plan.kill(ctx, job{l.Name, plan.TTL, addrs, name}, clients, k.Who)
		k.Ms = stats.Milliseconds(d)
	}
	if err != nil {
		k.Error = err.Error()
	}
}

// kill returns after how long another held the lock. The first of the clients is the holder's, if that stays alive.
func (plan Plan) kill(ctx context.Context, e job, clients []*contend.Client, who string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, contend.Beyond)
	defer cancel()
	var unlock contend.UnlockFunc
	said := holds
	if who == Waiter {
		var err error
		if unlock, err = clients[0].Waiter(e.Name)(ctx); err != nil {
			return 0, err
		}
		said = asks
	}
	p, err := start(ctx, e)
	if err != nil {
		return 0, err
	}
	defer p.kill()
	if err := p.await(said); err != nil {
		return 0, err
	}
	contend.Sleep(ctx, settle)

	q := queue{first: make(chan turn, 1)}
	for i := range plan.Waiters {
		lock := clients[1+i%(len(clients)-1)].Waiter(e.Name)
		q.all.Go(func() { q.wait(ctx, lock) })
	}
	contend.Sleep(ctx, settle)
	begin := time.Now()
	p.kill()
	if who == Waiter {
		begin = time.Now()
		err = contend.Release(ctx, unlock)
	}
	var d time.Duration
	if err == nil {
		select {
		case first := <-q.first:
			d, err = first.at.Sub(begin), first.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	cancel() // the others heed that, or have their turns
	if ended := contend.AwaitAll(&q.all); err == nil {
		err = ended
	}
	return d, err
}

// queue is those who wait.
type queue struct {
	all   sync.WaitGroup
	first chan turn // of the first of them, or what went wrong first
}

// turn is when somebody held the lock.
type turn struct {
	at  time.Time
	err error
}

func (q *queue) wait(ctx context.Context, lock contend.LockFunc) {
	unlock, err := lock(ctx)
	select {
	case q.first <- turn{time.Now(), err}:
	default:
	}
	if err == nil {
		_ = contend.Release(ctx, unlock)
	}
}

// Print writes a table with a row for each library, over all rounds.
func Print(w io.Writer, all []Kill) {
	fmt.Fprintf(w, `
## A process is killed

%d wait for one name, with a TTL of %g s. The table shows the time until a waiter has the lock. Waiter killed: the
first waiter is killed (SIGKILL), and a moment later the holder unlocks; the time is from this Unlock. Holder killed:
the time is from the kill. Beyond the TTL: the time of *holder killed*, minus the TTL. Each figure is the median
(lowest–highest) of the rounds; errors are a sum.

`, all[0].Waiters, all[0].TTLMs/1000)
	t := report.NewTable("library", "waiter killed, ms", "holder killed, ms", "beyond the TTL, ms", "errors")
	for _, group := range stats.Grouped(all, func(k Kill) string { return k.Library }) {
		of := func(who string, figure func(k *Kill) float64) string {
			some := slices.DeleteFunc(slices.Clone(group), func(k Kill) bool { return k.Who != who || k.Error != "" })
			if len(some) == 0 {
				return "–"
			}
			return stats.Across(some, figure).Text(0)
		}
		errs := 0
		for _, k := range group {
			if k.Error != "" {
				errs++
			}
		}
		ms := func(k *Kill) float64 { return k.Ms }
		t.AppendRow(table.Row{
			group[0].Library, of(Waiter, ms), of(Holder, ms),
			of(Holder, func(k *Kill) float64 { return k.Ms - k.TTLMs }), errs,
		})
	}
	fmt.Fprintf(w, "%s\n", t.RenderMarkdown())
}
