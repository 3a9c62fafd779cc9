// Package s3 is locker on object storage that has conditional writes: a lock is an object of a
// bucket of Amazon S3, or of another store that speaks its protocol.
//
// Importing it makes s3:// known to locker.Open:
//
//	s3://bucket/folder?region=eu-central-1
//	s3://bucket/folder?endpoint=https://s3.example.com
//
// The folder is locker unless the URL names another. Credentials come from where programs on
// Amazon's SDK find them, such as AWS_ACCESS_KEY_ID, a profile or a role: a URL takes none. Without
// the parameter region, the SDK's region is used, or us-east-1 if there is an endpoint.
//
// # The object
//
// The key of an object is the name of its lock, escaped. Its content is JSON: name, owner,
// metadata, token, TTL in seconds, whether the hold was released, and a random ID of the request.
// No two requests write the same text, so no two states have the same ETag. A write with If-Match
// acts on the state that its sender has read, or not at all.
//
//   - Take: read the object; if there is none, write with If-None-Match: *. If it is released or
//     has expired, write with If-Match: its ETag. The token is one more than the last, or the
//     store's clock in microseconds if that is more.
//   - Extend: read the object, and write with If-Match: its ETag if it is the hold's own. A store
//     that does not compare would overwrite another's hold, and neither holder would know.
//   - Release: the same write, and the JSON says that the hold was released. The object stays, for
//     its token.
//
// # What an answer means
//
// 200 means that the write was made. 412 means only that the object's ETag is not that of the
// request. The write may have been done all the same: if a proxy or a client repeats a request that
// was done, the repetition gets 412, too. So the object is read after a 412 and after a lost reply,
// and its owner tells who holds the lock. The SDK's own retries are off. 409, 429, 500 and 503 are
// no answer: the object is read again, four times in all, 20 to 200 ms apart. Nor is a redirect, nor
// an ETag that cannot be that of the write.
//
// # Expiry
//
// A hold has expired when the store's Date is later than the object's Last-Modified by the TTL and
// one second. Both times come from the store's clock, in one reply, and are cut to whole seconds.
// The additional second makes up for what was cut off. No clock of a client is compared with
// another's. The holder counts by its own clock, from before it sent the request. Because of the
// second that is added, a hold expires at the store up to a second after its TTL.
//
// The alternative would be a wait of one TTL by the observer's own clock, from when it first saw
// the ETag. It needs no clock of the store. But a process that tries once, such as a job that is
// started each hour, would never get the lock of a holder that has crashed.
//
// # Late requests
//
// A request that arrives late is refused if the object has another ETag. If a take was not
// answered, its Release first reads the object. If the take may still succeed, because the object
// has not changed since, Release writes the object anew, so that the take fails. An Extend that
// arrives after Release is refused. An Extend that arrives after its hold has expired may be
// accepted, if nobody has taken the lock since. By its own clock the holder has lost the hold then,
// so it releases the lock.
//
// # Sweeping
//
// Drivers that are in use delete objects that nobody has written for a day, with If-Match; a TTL is
// 12 hours at most. A new object's token is the store's clock. So it is larger than the token of a
// deleted object, unless that object was deleted in the very second of its grant. A lifecycle rule
// that deletes the folder's objects after a day does the same.
//
// docs/backends/s3.md in the repository says what a deployment needs to know.
package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/direct"
)

const (
	defaultFolder = "locker"
	defaultTTL    = time.Minute
	minTTL        = 3 * time.Second
	maxTTL        = 12 * time.Hour
)

// New makes a Client over client. The locks are in folder of bucket; "" means locker.
func New(client *s3.Client, bucket, folder string, opts ...locker.Option) (*locker.Client, error) {
	return locker.New(NewDriver(client, bucket, folder), opts...)
}

// NewDriver makes a Driver over client, whose retries and checksums are not used. Redirects are not
// followed. A client with an HTTPClient of a type of its own has to see to that itself. If its
// HTTPClient is the SDK's, the Driver has connections of its own.
func NewDriver(client *s3.Client, bucket, folder string) driver.Driver {
	if folder = strings.Trim(folder, "/"); folder == "" {
		folder = defaultFolder
	}
	o := client.Options()
	d := &backend{client: client, bucket: bucket, folder: folder + "/", store: storeOf(o, bucket), close: func() {}}
	switch c := o.HTTPClient.(type) {
	case *http.Client:
		d.http = direct.Client(c)
	case *awshttp.BuildableClient: // which follows 307 and 308
		transport := c.GetTransport() // a copy, with the certificates of the environment
		d.http, d.close = direct.Client(&http.Client{Transport: transport}), transport.CloseIdleConnections
	default:
		d.http = c
	}
	d.open, d.end = context.WithCancel(context.Background())
	return d
}

// backend is the Driver.
type backend struct {
	client         *s3.Client
	http           s3.HTTPClient
	bucket, folder string
	store          *store
	close          func()

	open       context.Context // until Close
	end        context.CancelFunc
	background sync.WaitGroup // sweeps and clean-ups
	mu         sync.Mutex     // guards swept; held to end open, and to begin what is in the background
	swept      time.Time
}

// Close ends a sweep, and closes the connections that are the Driver's own.
func (d *backend) Close() error {
	d.mu.Lock()
	d.end()
	d.mu.Unlock()
	d.background.Wait()
	d.close()
	return nil
}

// Guarantees returns what one bucket promises.
func (d *backend) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		driver.Exclusive: {Level: driver.LevelConditional, Condition: "while the store's clocks are sane and agree within TTL/100, " +
			"and the store compares and writes in one step. A store that ignores conditional requests is refused"},
		driver.Failover: {Level: driver.LevelConditional, Condition: "as far as the store keeps what it has confirmed, and reads show it at once, " +
			"as in one region of Amazon S3; a switch to a replicated bucket can lose the lock"},
		driver.Fencing: {Level: driver.LevelConditional, Condition: "if nobody deletes an object within a second after its lock was granted"},
		driver.FencingDurable: {Level: driver.LevelConditional, Condition: "while the store's clock is not set back, " +
			"and no object is lost within a second after its lock was granted"},
		driver.Ordered: {Level: driver.LevelNo, Condition: "waiters look at random times"},
		driver.Woken:   {Level: driver.LevelNo, Condition: "waiters poll every 1 to 2 s, or four times in a TTL if that is more often"},
	}
}

// DefaultTTL returns a minute: each renewal costs a write.
func (d *backend) DefaultTTL() time.Duration { return defaultTTL }

// CheckTTL accepts whole seconds, from 3 s to 12 h, because the store's times are in whole seconds.
func (d *backend) CheckTTL(ttl time.Duration) error {
	if ttl < minTTL || ttl > maxTTL || ttl%time.Second != 0 {
		return fmt.Errorf("%w: a TTL of %v: object storage counts whole seconds, take one from %v to %v", driver.ErrUnsupported, ttl, minTTL, maxTTL)
	}
	return nil
}

// key returns the key of a lock's object. A folder of a file system may have the objects: so there
// is no slash in the name, and it is not longer than the name of a file.
func (d *backend) key(name string) string {
	escaped := url.QueryEscape(name)
	if len(escaped) > 200 {
		sum := sha256.Sum256([]byte(name))
		escaped = "=" + hex.EncodeToString(sum[:]) // QueryEscape leaves no =
	}
	return d.folder + escaped + ".lock"
}

var _ interface {
	driver.Driver
	driver.Operator
	driver.TTLChecker
} = (*backend)(nil)

func init() { driver.Register("s3", open) }

// open makes a client of its own, which connects when it is first used.
func open(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	if u.User != nil {
		return nil, errors.New("s3:// takes no user and no password: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role")
	}
	if len(u.Hosts) != 1 {
		return nil, errors.New("s3:// takes a bucket, and a folder if you like, as in s3://bucket/folder")
	}
	region, hasRegion := u.Take("region")
	endpoint, hasEndpoint := u.Take("endpoint")
	if hasRegion && region == "" {
		return nil, errors.New("parameter region is empty")
	}
	if hasEndpoint && !isEndpoint(endpoint) {
		return nil, errors.New("parameter endpoint is not http://host:port or https://host:port, without a user")
	}
	if err := u.Unknown(); err != nil {
		return nil, err
	}
	c, err := config.LoadDefaultConfig(ctx, config.WithRegion(region), config.WithHTTPClient(awshttp.NewBuildableClient()))
	if err != nil {
		return nil, fmt.Errorf("configuration of the AWS SDK: %w", err)
	}
	if c.Region == "" {
		if !hasEndpoint {
			return nil, errors.New("s3:// needs a region: add ?region=… or set AWS_REGION")
		}
		c.Region = "us-east-1"
	}
	return NewDriver(s3.NewFromConfig(c, func(o *s3.Options) {
		if hasEndpoint {
			o.BaseEndpoint, o.UsePathStyle = aws.String(endpoint), true
		}
	}), u.Hosts[0], u.Path), nil
}

func isEndpoint(s string) bool {
	e, err := url.Parse(s)
	return err == nil && (e.Scheme == "http" || e.Scheme == "https") && e.Host != "" && e.User == nil && e.RawQuery == ""
}
