package s3

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/go-locker/locker/driver"
)

// Inspect implements driver.Operator, with one read.
func (d *backend) Inspect(ctx context.Context, name string) (state driver.State, err error) {
	o, err := d.get(ctx, d.key(name))
	if err != nil {
		return state, err
	}
	state.Token = o.Token
	if left := o.left(); left > 0 {
		state.Held, state.Holder = true, o.holder()
		state.Left = min(left, time.Duration(o.TTL)*time.Second) // the store's second belongs to nobody
	}
	return state, nil
}

// List implements driver.Operator.
func (d *backend) List(string) driver.Pager {
	return func(context.Context) (driver.Page, error) {
		return driver.Page{}, fmt.Errorf("%w: it does not list locks", driver.ErrUnsupported)
	}
}

// ForceRelease implements driver.Operator. The object has no owner then: what the former
// holder sends is refused.
func (d *backend) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	key := d.key(name)
	o, err := d.get(ctx, key)
	for try := 1; ; try++ {
		switch {
		case err != nil:
		case o.left() <= 0:
			return driver.ErrNotHeld
		case shown.Token != 0 && shown.Token != o.Token, shown.Holder.ID != "" && shown.Holder.ID != o.Owner:
			return &driver.HeldError{Holder: o.holder()}
		default:
			o, err = d.put(ctx, key, o.etag, record{Name: name, Token: o.Token, Released: true})
		}
		if err == nil || !again(ctx, err, try) {
			return err
		}
		o, err = d.look(ctx, key, o, err)
	}
}

const (
	keep       = 24 * time.Hour // above the longest TTL; a request that was signed 15 minutes ago is refused
	sweepEvery = time.Hour
	sweepLimit = 10 * time.Minute
	sweepOdds  = 64 // a process that lives for one lock sweeps, too, but seldom
)

// sweepIfDue has a release sweep now and then, in the background.
func (d *backend) sweepIfDue() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if mrand.N(sweepOdds) > 0 || time.Since(d.swept) < sweepEvery || d.open.Err() != nil {
		return
	}
	d.swept = time.Now()
	d.background.Go(func() { _ = d.sweep(d.open) }) // the next one tries again
}

// sweep deletes objects that nobody has written for a day, and that are ours, if the store compares
// before it deletes.
func (d *backend) sweep(ctx context.Context) error {
	if h := d.store.found.Load(); h == nil || !h.deletes {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	in := &s3.ListObjectsV2Input{Bucket: &d.bucket, Prefix: &d.folder}
	for {
		page, err := d.client.ListObjectsV2(ctx, in, d.plain)
		if err != nil {
			return d.failed("list", d.folder, err)
		}
		now, _ := middleware.GetServerTime(page.ResultMetadata)
		for _, listed := range page.Contents {
			if now.Sub(aws.ToTime(listed.LastModified)) < keep {
				continue
			}
			o, err := d.get(ctx, aws.ToString(listed.Key))
			if err != nil || o.etag == "" || o.now.Sub(o.written) < keep { // it may be somebody else's
				continue
			}
			if _, err := d.delete(ctx, *listed.Key, o.etag); err != nil && !errors.Is(err, errRefused) {
				return err
			}
		}
		if in.ContinuationToken = page.NextContinuationToken; in.ContinuationToken == nil {
			return nil
		}
	}
}
