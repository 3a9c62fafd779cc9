//go:build unix

package election_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/election"
	_ "github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/redis"
)

const envURL = "LOCKER_LEADER_URL"

func init() { child.Register("leader", serveLeader) }

// serveLeader is a process that is a candidate, and answers each question whether it leads.
func serveLeader(t testing.TB) {
	c, err := locker.Open(t.Context(), os.Getenv(envURL), locker.WithMetadata("the child"))
	require.NoError(t, err)
	defer c.Close()
	e := election.New(c, "leader")
	go func() {
		_ = e.Lead(t.Context(), time.Second, func(ctx context.Context, term uint64) {
			fmt.Println("term", term)
			<-ctx.Done()
		})
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println("leads", e.IsLeader(), e.Term() != 0) // before anything else
	}
}

// A process is stopped while it leads, and another leads within a TTL. When the first wakes, its first look tells it that it does not.
func TestProcess_aLeaderThatIsStoppedKnowsWhenItWakes(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"redis": func(t *testing.T) string { t.Helper(); return "redis://" + testserver.SharedRedis(t).Addr() },
		"etcd":  func(t *testing.T) string { t.Helper(); return "etcd://" + testserver.SharedEtcd(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := url(t) + "?ttl=4s"
			p := child.Start(t, "leader", envURL+"="+url)
			first := p.Says("term")[0]
			p.Tell("do you lead?")
			require.Equal(t, []string{"true", "true"}, p.Says("leads"))

			c, err := locker.Open(t.Context(), url)
			require.NoError(t, err)
			defer c.Close()
			e := election.New(c, "leader")
			leader, err := e.Leader(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "the child", leader.ID)
			assert.Equal(t, first, fmt.Sprint(leader.Term))

			p.Stop()
			p.Tell("do you lead?") // what it reads first when it wakes
			ctx, cancel := context.WithCancel(t.Context())
			terms := make(chan uint64, 1)
			done := testwait.Go(func() error {
				return e.Lead(ctx, time.Second, func(ctx context.Context, term uint64) {
					terms <- term
					<-ctx.Done()
				})
			})
			select {
			case second := <-terms:
				assert.Greater(t, second, leader.Term)
			case <-time.After(time.Minute):
				t.Fatal("nobody leads")
			}
			p.Continue()
			assert.Equal(t, []string{"false", "false"}, p.Says("leads"))
			cancel()
			require.NoError(t, <-done)
		})
	}
}
