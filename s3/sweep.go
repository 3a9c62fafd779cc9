package s3

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const (
	keep       = 24 * time.Hour // above the longest TTL; a request that was signed 15 minutes ago is refused
	sweepEvery = time.Hour
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
