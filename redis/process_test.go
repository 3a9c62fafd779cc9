//go:build unix

package redis_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/redis"
)

// What a process of its own is to do is in its environment, and when on its standard input.
const (
	childDoes = "LOCKER_REDIS_CHILD"
	childAddr = "LOCKER_REDIS_ADDR"
	childTTL  = "LOCKER_REDIS_TTL"
)

func init() { child.Register("child", runChild) }

// runChild is what the processes of the tests below do.
func runChild(t testing.TB) {
	does, n, _ := strings.Cut(os.Getenv(childDoes), " ")
	do := map[string]func(childSide) error{"hold": holdUntilAsked}[does]
	require.NotNil(t, do, does)
	ttl, err := time.ParseDuration(os.Getenv(childTTL))
	require.NoError(t, err)
	rdb := connect(t, os.Getenv(childAddr))
	c, err := redis.New(rdb, locker.WithTTL(ttl), locker.WithBackoff(time.Millisecond, 5*time.Millisecond))
	require.NoError(t, err)
	require.NoError(t, do(childSide{t.Context(), c, rdb, n, bufio.NewReader(os.Stdin)}))
	require.NoError(t, c.Close())
}

type childSide struct {
	ctx    context.Context
	client *locker.Client
	rdb    *goredis.Client
	n      string
	in     *bufio.Reader
}

// holdUntilAsked holds, and reports in the end what it believes.
func holdUntilAsked(c childSide) error {
	m := c.client.Mutex("shared")
	if err := m.Lock(c.ctx); err != nil {
		return err
	}
	fmt.Println("held", m.FencingToken())
	_, err := c.in.ReadString('\n')
	if errors.Is(err, io.EOF) {
		return errors.New("the parent is gone")
	}
	lost := false
	select {
	case <-m.Lost():
		lost = true
	case <-time.After(2 * time.Second):
	}
	token := m.FencingToken()
	fmt.Println("believes", lost, token, errors.Is(m.Unlock(c.ctx), locker.ErrLost))
	return nil
}

func startChild(t *testing.T, does, addr string, ttl time.Duration) *child.Process {
	t.Helper()
	return child.Start(t, "child", childDoes+"="+does, childAddr+"="+addr, childTTL+"="+ttl.String())
}
