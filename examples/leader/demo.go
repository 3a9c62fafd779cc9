package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-locker/locker"
)

// demo is three candidates who share a lock as three processes would.
type demo struct {
	*story
	url     string
	leading chan func() // stops the present leader
	all     sync.WaitGroup
	errs    [3]error
}

// tell has the first candidate be cut off from its backend, and the others stopped, one after the other. A ctx that ends
// earlier ends the story.
func (s *story) tell(ctx context.Context, url string) error {
	ctx, cancel := context.WithCancel(ctx)
	d := &demo{story: s, url: url, leading: make(chan func())}
	// Without renewal it is as if nothing that the first sends would arrive any more.
	err := d.enter(ctx, cancel, 0, locker.WithoutRenewal())
	if d.elected(ctx) != nil {
		s.say("web-1", "is cut off: its lock is not renewed")
	}
	for i := 1; i < len(d.errs) && err == nil; i++ {
		err = d.enter(ctx, cancel, i)
	}
	for range 2 {
		if stop := d.elected(ctx); stop != nil {
			pause(ctx, 500*time.Millisecond)
			stop()
		}
	}
	cancel()
	d.all.Wait() // for the lead to be given back
	return errors.Join(err, errors.Join(d.errs[:]...))
}

// enter has a candidate campaign, until it is stopped or ctx ends. One who fails ends the story.
func (d *demo) enter(ctx context.Context, fail func(), i int, opts ...locker.Option) error {
	id := fmt.Sprintf("web-%d", i+1)
	own, end := context.WithCancel(ctx)
	stop := func() {
		d.say(id, "is told to stop, as by Ctrl-C")
		end()
	}
	p, err := d.process(ctx, id, d.url, func() {
		select {
		case d.leading <- stop:
		case <-own.Done():
		}
	}, append(opts, locker.WithTTL(time.Second))...)
	if err != nil {
		end()
		fail()
		return err
	}
	d.all.Go(func() {
		defer end()
		defer p.client.Close()
		if d.errs[i] = p.Lead(own, reserve, p.lead); d.errs[i] != nil {
			fail()
		}
	})
	return nil
}

// elected waits for the next leader, and returns how to stop it; nil, if ctx has ended first.
func (d *demo) elected(ctx context.Context) (stop func()) {
	select {
	case stop := <-d.leading:
		return stop
	case <-ctx.Done():
		return nil
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
