// Leader keeps one of many processes the leader: the one that does what only one may do. It steps down before its lock expires,
// and then another leads.
//
//	go run ./examples/leader                                   # three candidates in one process, in memory, for a few seconds
//	go run ./examples/leader 'redis://localhost:6379?ttl=5s'   # one candidate, until Ctrl-C: run it in several terminals
//
// Any URL of docs/urls.md will do. Stop the leader with Ctrl-C, and another leads at once; kill it (kill -9), or have it stand
// still (kill -STOP), and another leads when its TTL, 30 s by default, is over.
//
// What to copy is process, lead and join: package election does the rest.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/all" // so that the URL may name any backend
	"github.com/go-locker/locker/election"
)

func main() {
	host, _ := os.Hostname()
	id := flag.String("id", fmt.Sprintf("%s/%d", host, os.Getpid()), "who this candidate is")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: leader [-id name] [URL]   (default: three candidates on mem://leader)")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 1 {
		fmt.Fprintln(os.Stderr, "one URL at most, and flags come before the URL: -h tells them")
		os.Exit(2)
	}
	// The first Ctrl-C, or a supervisor's SIGTERM, ends ctx, and the lead is given back. A second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)

	var err error
	if s := newStory(os.Stdout); flag.NArg() == 0 {
		err = s.tell(ctx, "mem://leader")
	} else {
		err = s.join(ctx, flag.Arg(0), *id)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// story says who does what, and when.
type story struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func newStory(out io.Writer) *story { return &story{out: out, start: time.Now()} }

func (s *story) say(who, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%5.2fs  %-6s %s\n", time.Since(s.start).Seconds(), who, fmt.Sprintf(format, args...))
}

// reserve is how long before another can lead a leader stops: longer than a piece of its work takes, and shorter than any TTL that is useful here.
const reserve = 250 * time.Millisecond

// join has this process be one of the candidates, until ctx ends.
func (s *story) join(ctx context.Context, url, id string) error {
	p, err := s.process(ctx, id, url, func() {})
	if err != nil {
		return err
	}
	defer p.client.Close()
	s.say(id, "is a candidate")
	return p.Lead(ctx, reserve, p.lead)
}

// process is a candidate with a Client of its own.
type process struct {
	*election.Election
	client *locker.Client
	lead   func(ctx context.Context, term uint64)
}

func (s *story) process(ctx context.Context, id, url string, elected func(), opts ...locker.Option) (*process, error) {
	client, err := locker.Open(ctx, url, append(opts, locker.WithMetadata(id))...) // for those who ask who leads: Election.Leader
	if err != nil {
		return nil, err
	}
	lead := func(ctx context.Context, term uint64) {
		s.say(id, "leads, with token %d", term)
		elected()
		n := work(ctx, term)
		s.say(id, "leads no more, after %d pieces of work: %v", n, context.Cause(ctx))
	}
	return &process{election.New(client, "leader"), client, lead}, nil
}

// work does what only the leader may, piece by piece, until ctx ends, and returns how many it has done. What it writes has to carry the term, and
// the resource has to refuse an old one (package fence): a leader that was paused does not know yet that it leads no more.
func work(ctx context.Context, _ uint64) (pieces int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			pieces++ // no piece may take longer than the reserve, unless it heeds ctx
		case <-ctx.Done():
			return pieces
		}
	}
}
