//go:build unix

package redis_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/testserver"
	"github.com/go-locker/locker/redis"
)

func init() {
	others := child
	child = func(mode string) int {
		n, isWait := strings.CutPrefix(mode, "wait ")
		if !isWait {
			return others(mode)
		}
		if err := runWaiters(n); err != nil {
			fmt.Println("failed:", err)
			return 1
		}
		return 0
	}
}

// runWaiters has n wait for the lock, work, and give it back. It says when each has been served, and ends
// with its standard input.
func runWaiters(n string) error {
	count, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	rdb := goredis.NewClient(&goredis.Options{Addr: os.Getenv("LOCKER_REDIS_ADDR")})
	c, err := redis.New(rdb)
	if err != nil {
		return err
	}
	ctx := context.Background()
	ended := make(chan error)
	for range count {
		go func() {
			m := c.Mutex("shared")
			if err := m.Lock(ctx); err != nil {
				ended <- err
				return
			}
			err := work(ctx, rdb, m.FencingToken())
			if err == nil {
				err = m.Unlock(ctx)
			}
			ended <- err
		}()
	}
	for range count {
		if err := <-ended; err != nil {
			return err
		}
		fmt.Println("served", os.Getpid())
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return c.Close()
}

// startWaiters has a process of its own put n waiters into the queue.
func (r *room) startWaiters(n int) *childProcess {
	r.t.Helper()
	before, listeners := r.length(), len(r.listeners())
	p := startChild(r.t, "wait "+strconv.Itoa(n), r.direct.Options().Addr, time.Minute)
	eventually(r.t, "the process waits", func() bool { return r.length() == before+n })
	r.listening(listeners + 1)
	return p
}

func (r *room) kill(p *childProcess) {
	r.t.Helper()
	require.NoError(r.t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

func TestQueueProcess_waitersKilledInTheQueueHoldNobodyUp(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newRoom(t, connect(t, s.Addr()))
	unlock := r.hold(newClient(t, s.Addr()))
	head := r.startWaiters(3)
	first := r.join(t.Context(), newClient(t, s.Addr()), 0)
	r.listening(2)
	middle := r.startWaiters(3)
	second := r.join(t.Context(), newClient(t, s.Addr()), 1)
	r.kill(head)
	r.kill(middle)
	r.listening(2)
	resetStats(t, r.direct)
	unlock()
	wantServed(t, []<-chan error{first, second})
	assert.Equal(t, 2, commandCalls(t, r.direct)["publish"], "claims, none of them for the dead")
	r.wantOrder(0, 1)
	r.wantEmpty()
}

func TestQueueProcess_oneKilledWhileTheLockIsClaimedForItCostsOneClaim(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newRoom(t, connect(t, s.Addr()))
	unlock := r.hold(newClient(t, s.Addr()))
	p := r.startWaiters(20)
	next := r.join(t.Context(), newClient(t, s.Addr()), 0)
	r.listening(2)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	unlock()
	r.kill(p)
	require.NoError(t, await(t, next))
	r.wantEmpty()
}

// Twenty wait in a process that hangs while it is handed the lock.
func TestQueueProcess_oneThatHangsCostsOneClaimAndIsServedWhenItGoesOn(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newRoom(t, connect(t, s.Addr()))
	unlock := r.hold(newClient(t, s.Addr()))
	hung := r.startWaiters(20)
	all := r.joinAll(t.Context(), 5, newClients(t, s.Addr(), 2)...)
	r.listening(3)
	require.NoError(t, hung.cmd.Process.Signal(syscall.SIGSTOP))
	resetStats(t, r.direct)
	unlock()
	wantServed(t, all)
	assert.LessOrEqual(t, commandCalls(t, r.direct)["publish"], 6, "claims, one of them for the one that hangs")
	r.wantOrder(upTo(5)...)
	require.NoError(t, hung.cmd.Process.Signal(syscall.SIGCONT))
	for range 20 {
		hung.says("served")
	}
	r.wantEmpty()
	_, err := io.WriteString(hung.stdin, "thanks\n")
	require.NoError(t, err)
}

func TestQueueProcess_aKilledHoldersQueueIsServedInOrder(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	s := testserver.Redis(t)
	r := newRoom(t, connect(t, s.Addr()))
	holder := startChild(t, "hold", s.Addr(), ttl)
	holder.says("held")
	all := r.joinAll(t.Context(), 40, newClients(t, s.Addr(), 4)...)
	r.listening(4)
	r.kill(holder)
	wantServed(t, all)
	r.wantOrder(upTo(40)...)
	r.wantEmpty()
}

func TestQueueProcess_processesAreServedInOrder(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newRoom(t, connect(t, s.Addr()))
	unlock := r.hold(newClient(t, s.Addr()))
	var children []*childProcess
	for range 4 {
		children = append(children, r.startWaiters(1))
	}
	served := make(chan int, len(children))
	for i, p := range children {
		go func() {
			if line, err := p.out.ReadString('\n'); err == nil && strings.HasPrefix(line, "served ") {
				served <- i
			}
		}()
	}
	last := r.join(t.Context(), newClient(t, s.Addr(), locker.WithTTL(5*time.Second)), 0)
	unlock()
	require.NoError(t, await(t, last))
	for range children {
		select {
		case <-served:
		case <-time.After(patient):
			t.Fatal("a process was not served")
		}
	}
	r.wantEmpty()
}
