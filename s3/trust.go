package s3

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/go-locker/locker/driver"
)

// store is a bucket, as far as this process has tried what it does with conditions.
type store struct {
	turn  chan struct{} // has a place for the one who tries
	found atomic.Pointer[habits]
}

// habits are those of a store that heeds the conditions of a write.
type habits struct {
	deletes bool // it compares before it deletes, too
	digests bool // an ETag is the MD5 of the text
}

var stores sync.Map // of *store, by endpoint, region and bucket

func storeOf(address string) *store {
	s, _ := stores.LoadOrStore(address, &store{turn: make(chan struct{}, 1)})
	return s.(*store)
}

// trust tries whether the store heeds conditions, once for each bucket and process: there are
// stores that accept the headers and ignore them.
func (d *Driver) trust(ctx context.Context) error {
	s := d.store
	if s.found.Load() != nil {
		return nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.found.Load() != nil {
		return nil
	}
	h, err := d.try(ctx)
	if err == nil {
		s.found.Store(h)
	}
	return err
}

// try writes an object of its own, and removes it.
func (d *Driver) try(ctx context.Context) (h *habits, err error) {
	r := record{Name: "self-test:" + rand.Text(), Released: true, Request: "1"}
	other := r
	other.Request = "2"
	text, _ := json.Marshal(r)
	key := d.key(r.Name)
	first, err := d.write(ctx, key, "", r)
	if err != nil {
		return nil, fmt.Errorf("self-test: %w", err)
	}
	defer func() {
		if err != nil {
			_ = d.delete(context.WithoutCancel(ctx), key, "")
		}
	}()
	h = &habits{digests: first == digest(text)}
	if _, err = d.write(ctx, key, "", other); !errors.Is(err, errRefused) {
		return nil, d.distrust("If-None-Match: *", err)
	}
	second, err := d.write(ctx, key, first, other)
	if err != nil {
		return nil, fmt.Errorf("self-test: a write with If-Match and the object's ETag: %w", err)
	}
	if _, err = d.write(ctx, key, first, r); !errors.Is(err, errRefused) {
		return nil, d.distrust("If-Match", err)
	}
	if h.deletes = errors.Is(d.delete(ctx, key, first), errRefused); h.deletes {
		_ = d.delete(ctx, key, second) // else a sweep does
	}
	return h, nil
}

// distrust is for a write that was to be refused.
func (d *Driver) distrust(header string, err error) error {
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	return fmt.Errorf("%w: the store of bucket %s ignores %s: of two writes both succeed, so that two can hold a lock; "+
		"use a store with conditional writes", driver.ErrUnsupported, d.bucket, header)
}

// torn reports whether a read has the ETag of another write than the text is of.
func (s *store) torn(text []byte, etag string) bool {
	h := s.found.Load()
	return h != nil && h.digests && etag != digest(text)
}

func digest(text []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(text)) }

// delete deletes an object if its ETag is over; "" is any.
func (d *Driver) delete(ctx context.Context, key, over string) error {
	in := &s3.DeleteObjectInput{Bucket: &d.bucket, Key: &key}
	if over != "" {
		in.IfMatch = &over
	}
	_, err := d.client.DeleteObject(ctx, in, plain)
	if refused(err) {
		return errRefused
	}
	return err
}
