package main

import (
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/internal/test/testserver"
)

func TestProbePG(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	c, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	probe(t, s.URL()+"&pool_max_conns=16", func() int {
		var n int
		_ = c.QueryRow(t.Context(), "select count(*) from pg_stat_activity where backend_type='client backend'").Scan(&n)
		return n - 1
	})
}

func TestProbeRedis(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	probe(t, s.URL(), func() int { return strings.Count(fmt.Sprint(s.Do("CLIENT", "LIST")), "addr=")/2 - 1 })
}

func probe(t *testing.T, url string, count func() int) {
	p := begin(t, "check", url)
	done := make(chan struct{})
	go func() { p.waitFor(7 * time.Minute); close(done) }()
	most := map[int]int{}
	for {
		select {
		case <-done:
		case <-time.After(5 * time.Millisecond):
			at := strings.Count(p.stderr.String(), "\n")
			most[at] = max(most[at], count())
			continue
		}
		break
	}
	lines := strings.Split(p.stderr.String(), "\n")
	var idx []int
	for i := range most {
		idx = append(idx, i)
	}
	sort.Slice(idx, func(a, b int) bool { return most[idx[a]] > most[idx[b]] })
	for _, i := range idx[:min(25,len(idx))] {
		fmt.Println(most[i], lines[min(i, len(lines)-1)])
	}
	fmt.Println(p.stdout.String(), p.stderr.String())
}
