package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithymiddleware "github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
)

// record is the text of an object.
type record struct {
	Name     string `json:"name"`
	Owner    string `json:"owner,omitempty"` // of the hold, also after its release; none: an operator ended it
	Request  string `json:"request"`         // random, so that each write has an ETag of its own
	Token    uint64 `json:"token"`           // of the hold, or the last
	TTL      int64  `json:"ttl_seconds,omitempty"`
	Released bool   `json:"released,omitempty"`
	Metadata string `json:"metadata,omitempty"`
	Bytes    []byte `json:"metadata_base64,omitempty"` // if it is not UTF-8
}

// object is what a read has found, at one moment.
type object struct {
	record

	etag         string // "": there is none
	digest       string // what the ETag is if the store's ETags are digests
	now, written time.Time
}

// left returns how long the hold lasts yet, by the store's clock, whose times are cut to seconds.
// It is 0 or less if there is no hold.
func (o object) left() time.Duration {
	if o.etag == "" || o.Released {
		return 0
	}
	return left(o.now, o.written, time.Duration(o.TTL)*time.Second)
}

func left(now, written time.Time, ttl time.Duration) time.Duration {
	return written.Truncate(time.Second).Add(ttl + time.Second).Sub(now.Truncate(time.Second))
}

func (o object) holder() driver.Participant {
	p := driver.Participant{ID: o.Owner, Metadata: o.Metadata}
	if o.Bytes != nil {
		p.Metadata = string(o.Bytes)
	}
	return p
}

// next returns the token of the next grant. A new object begins at the store's clock, in
// microseconds, as one does that an old copy has replaced.
func (o object) next() uint64 { return max(o.Token+1, uint64(max(o.now.UnixMicro(), 0))) }

var (
	// errRefused is the answer to a write that finds another object than it asked for.
	errRefused = errors.New("the object has changed")
	// errBusy is matched by an answer that says nothing: the object may be written or not.
	errBusy error = &noanswer.Later{Err: errors.New("the store has not done what was asked, or does not tell whether it has")}
	// errMistaken is the answer to a write that cannot be about it: its outcome is unknown.
	errMistaken = fmt.Errorf("%w: a write was answered with a page, or the ETag of something else", errBusy)
)

// plain has each request sent once, and to the store alone. A request that the SDK sends again is
// refused what the first has done. Other stores know few of the checksums.
func (d *backend) plain(o *s3.Options) {
	o.HTTPClient = d.http
	o.Retryer = aws.NopRetryer{}
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
}

// get reads an object. That there is none is no error. A store may answer with the text of one write
// and the ETag of another. Each write is unique, so two reads with the same mismatch are not torn:
// the store's ETags are no digests any more, as after a change of the bucket's encryption.
func (d *backend) get(ctx context.Context, key string) (object, error) {
	o, err := d.read(ctx, key)
	if err != nil || !d.store.torn(o) {
		return o, err
	}
	first := o
	if o, err = d.read(ctx, key); err != nil || !d.store.torn(o) {
		return o, err
	}
	if o.etag != first.etag || o.Request != first.Request {
		return o, fmt.Errorf("read %s/%s: %w: the ETag is that of another write", d.bucket, key, errBusy)
	}
	d.store.noDigests()
	return o, nil
}

func (d *backend) read(ctx context.Context, key string) (o object, err error) {
	out, err := d.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &d.bucket, Key: &key}, d.plain)
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		if _, ok := errors.AsType[*types.NoSuchKey](err); ok {
			o.now, err = http.ParseTime(answer.Response.Header.Get("Date"))
			return o, noDate(err)
		}
	}
	if err != nil {
		return o, d.failed("read", key, err)
	}
	defer func() { _ = out.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(out.Body, 1<<24))
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(text, &o.record); err != nil || o.Name == "" || d.key(o.Name) != key {
		return o, fmt.Errorf("%s/%s is no object of package s3: give the locks a folder of their own", d.bucket, key)
	}
	now, ok := middleware.GetServerTime(out.ResultMetadata)
	if !ok || out.LastModified == nil || aws.ToString(out.ETag) == "" {
		return o, noDate(errors.New("a reply has no Date, no Last-Modified or no ETag"))
	}
	o.etag, o.digest, o.now, o.written = *out.ETag, digest(text), now, *out.LastModified
	return o, nil
}

func noDate(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: the store does not tell its time: %w", driver.ErrUnsupported, err)
	}
	return err
}

// put writes r if the object's ETag is over, or if there is no object and over is "". It returns
// the object, or errRefused and the one that is there instead. The answer to a request that was
// sent twice on its way may be about the second, and what answers need not be the store: so what is
// there is compared with what was sent.
func (d *backend) put(ctx context.Context, key, over string, r record) (o object, err error) {
	r.Request = rand.Text()
	o.record = r
	o.etag, err = d.write(ctx, key, over, r)
	if !errors.Is(err, errRefused) && !errors.Is(err, errMistaken) {
		return o, err
	}
	found, unread := d.get(ctx, key)
	switch {
	case unread != nil:
		return found, unread
	case found.Request == r.Request:
		return found, nil
	case over == "" && found.etag == "" && errors.Is(err, errRefused):
		err = fmt.Errorf("write %s/%s: the store shows no object there and refuses a new one (%w), as some do after a deletion "+
			"in a bucket with versions: remove the delete marker", d.bucket, key, err)
	}
	return found, err
}

func (d *backend) write(ctx context.Context, key, over string, r record) (etag string, err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	sum := md5.Sum(text)
	in := &s3.PutObjectInput{Bucket: &d.bucket, Key: &key, Body: bytes.NewReader(text), ContentType: aws.String("application/json")}
	if !strings.HasSuffix(d.bucket, "--x-s3") { // a directory bucket, which knows no MD5
		in.ContentMD5 = aws.String(base64.StdEncoding.EncodeToString(sum[:])) // buckets with Object Lock ask for a checksum
	}
	if over == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &over
	}
	out, err := d.client.PutObject(ctx, in, d.plain)
	switch {
	case err == nil && (hasBody(out.ResultMetadata) || d.store.mistaken(aws.ToString(out.ETag), over, digest(text))):
		return "", errMistaken
	case err == nil:
		return *out.ETag, nil
	case refused(err):
		return "", errRefused
	default:
		return "", d.failed("write", key, err)
	}
}

// hasBody reports whether an answer is a page, as of a proxy: a store answers a write with headers
// alone.
func hasBody(answer smithymiddleware.Metadata) bool {
	r, ok := middleware.GetRawResponse(answer).(*smithyhttp.Response)
	return ok && r.ContentLength > 0
}

// again reports whether another answer may come soon, and waits until then. After errRefused what
// is there is known, and after the last try it is looked at once more.
func again(ctx context.Context, err error, try int) bool {
	if errors.Is(err, errRefused) {
		return try <= tries
	}
	if !errors.Is(err, errBusy) || try >= tries {
		return false
	}
	return clock.Sleep(ctx, time.Duration(try)*(20*time.Millisecond+mrand.N(30*time.Millisecond))) == nil
}

// look returns what is there after a try that failed with err: o, if it was refused.
func (d *backend) look(ctx context.Context, key string, o object, err error) (object, error) {
	if errors.Is(err, errRefused) {
		return o, nil
	}
	return d.get(ctx, key)
}

const tries = 4 // in one call, of requests that are refused, or not answered with what counts

// refused reports whether a conditional request was answered that there is another object, or none.
func refused(err error) bool {
	return status(err) == http.StatusPreconditionFailed || code(err) == "NoSuchKey"
}

// code returns the error code of an answer, or "".
func code(err error) string {
	if coded, ok := errors.AsType[smithy.APIError](err); ok {
		return coded.ErrorCode()
	}
	return ""
}

// target tells where a redirect leads, without its path and query, which may have a secret.
func target(err error) string {
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		if to, err := answer.Response.Location(); err == nil {
			return " redirects to " + to.Scheme + "://" + to.Host
		}
	}
	return " redirects"
}

// status returns that of an answer, or 0.
func status(err error) int {
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return answer.HTTPStatusCode()
	}
	return 0
}

// failed tells what failed, with the client's error, which matches errBusy if the store may have
// another answer soon.
func (d *backend) failed(what, key string, err error) error {
	switch s := status(err); {
	case s == http.StatusNotImplemented:
		err = fmt.Errorf("%w: %w", driver.ErrUnsupported, err)
	case s == http.StatusConflict, s == http.StatusTooManyRequests, s >= http.StatusInternalServerError:
		err = fmt.Errorf("%w: %w", errBusy, err)
	case s >= 300 && s < 400:
		err = fmt.Errorf("%w (the store%s, and redirects are not followed: name the region and the endpoint that serve the bucket)", err, target(err))
	case what == "read" && code(err) == "AccessDenied":
		err = fmt.Errorf("%w (without the right s3:ListBucket, a store answers this for an object that does not exist)", err)
	}
	return fmt.Errorf("%s %s/%s: %w", what, d.bucket, key, err)
}
