package etcd

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sessions"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/fuzzurl"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Whatever two names there are: neither stands in the other's folder, and nothing but what is ours
// is taken for it.
func FuzzFolder(f *testing.F) {
	long := strings.Repeat("x", sessions.LongName)
	for _, names := range [][2]string{
		{"b", "b/"},
		{"b%2F", "b/"},
		{"b%/dead/", "b"},
		{"b%", "b"},
		{"", "/"},
		{"b:c", "b"},
		{"b\x00", "b%00"},
		{"\xff", "%FF"},
		{"é", "e\u0301"},
		{long, long + "y"},
		{long + "y", escape(long + "y")},
		{"b", "b/0123456789abcdef0123456789abcdef"},
	} {
		f.Add(names[0], names[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		p, q := newPlace("p:"+a, sessions.NewOwner()), newPlace("p:"+b, sessions.NewOwner())
		if name, ok := sessions.Unescape(escape(a), escape); ok != (a != "" && len(escapeAll(a)) <= sessions.LongName) || ok && name != a {
			t.Errorf("%q is listed as %q", a, name)
		}
		for _, x := range []string{p.key, p.tombstone} {
			if a != b && strings.HasPrefix(x, q.folder) {
				t.Errorf("%q of %q is in the folder of %q", x, a, b)
			}
			if !strings.HasPrefix(x, "p:") || len(x) > len("p:")+sessions.LongName+100 {
				t.Errorf("%q is not below the prefix, or long", x)
			}
		}
		if strings.HasPrefix(p.tombstone, p.folder) {
			t.Errorf("the mark %q stands in the queue", p.tombstone)
		}
		if !isContender(&mvccpb.KeyValue{Key: []byte(p.key), Lease: 1}, p.folder) {
			t.Errorf("%q is not found in the queue", p.key)
		}
		// Others may have put any key there.
		foreign := &mvccpb.KeyValue{Key: []byte(p.folder + b), Lease: 1}
		if _, err := hex.DecodeString(b); isContender(foreign, p.folder) && (err != nil || len(b) != sessions.OwnerLen || strings.ToLower(b) != b) {
			t.Errorf("%q is taken for an owner", b)
		}
	})
}

func TestRefused_isOnlyWhatTheServerHasNotDone(t *testing.T) {
	for _, err := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken, rpctypes.ErrLeaseNotFound, rpctypes.ErrLeaseTTLTooLarge, rpctypes.ErrRequestTooLarge} {
		assert.True(t, refused(err), "%v", err)
	}
	for _, err := range []error{
		rpctypes.ErrTimeout, rpctypes.ErrLeaderChanged, rpctypes.ErrNoLeader, rpctypes.ErrStopped, rpctypes.ErrNoSpace,
		context.Canceled, context.DeadlineExceeded, errors.New("else"),
	} {
		assert.False(t, refused(err), "%v", err)
	}
}

// A server that is busy with authentication goes on with it when nobody waits any more, and is not
// to be asked at once again. A slow answer is remembered for seconds, however many fast ones there
// are.
func TestAsk_isPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(&clientv3.Client{})
		patience := func(left time.Duration) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			return d.patience(ctx)
		}
		assert.Equal(t, 300*time.Millisecond, patience(3*time.Second))
		assert.Equal(t, time.Second, patience(24*time.Hour))
		d.cli.Username = "alice"
		assert.Equal(t, time.Second, patience(3*time.Second))
		d.cli.Username = ""
		d.latency.note(3 * time.Second)
		for range 1000 {
			d.latency.note(time.Millisecond)
		}
		assert.Equal(t, 6*time.Second, patience(time.Minute))
		assert.Equal(t, 4*time.Second, patience(5*time.Second), "another try has time")
		time.Sleep(2 * time.Second)
		assert.Equal(t, 3*time.Second, patience(time.Minute))
		time.Sleep(time.Minute)
		assert.Equal(t, time.Second, patience(time.Minute))
	})
}

// A second try does not end the first, whose answer counts; then a request is given the time that
// answers take.
func TestAsk_besideATryThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, sent, ended := newDriver(&clientv3.Client{}), atomic.Int64{}, atomic.Int64{}
		answer := func(took time.Duration, outcome error) (int64, error) {
			sent.Store(0)
			ended.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return ask(ctx, d, func(ctx context.Context) (int64, error) {
				n := sent.Add(1)
				defer ended.Add(1)
				select {
				case <-time.After(took):
					return n, outcome
				case <-ctx.Done():
					return n, status.FromContextError(ctx.Err()).Err()
				}
			})
		}
		const slow = 2 * time.Second
		began := time.Now()
		n, err := answer(slow, nil)
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		assert.Equal(t, slow, time.Since(began))
		assert.EqualValues(t, 3, sent.Load())
		assert.EqualValues(t, 3, ended.Load(), "those beside it have ended, too")
		_, err = answer(slow, rpctypes.ErrPermissionDenied)
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
		assert.EqualValues(t, 1, sent.Load())
		_, err = answer(time.Hour, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, ended.Load(), sent.Load())
	})
}

// What a server refuses is an answer: the try that hangs at another is given up.
func TestAsk_takesARefusalForAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		began := time.Now()
		_, err := ask(t.Context(), newDriver(&clientv3.Client{}), func(ctx context.Context) (int, error) {
			_, dated := ctx.Deadline()
			assert.False(t, dated, "gRPC would send it along")
			if sent.Add(1) > 1 {
				return 0, rpctypes.ErrPermissionDenied
			}
			<-ctx.Done()
			return 0, status.FromContextError(ctx.Err()).Err()
		})
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// A connection breaks: another may be there, but not for ever.
func TestAsk_onAnotherConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := status.Error(codes.Unavailable, "EOF")
		failing := func(failures int, err error) (sent int, _ error) {
			return ask(t.Context(), newDriver(&clientv3.Client{}), func(context.Context) (int, error) {
				if sent++; sent <= failures {
					return sent, err
				}
				return sent, nil
			})
		}
		began := time.Now()
		sent, err := failing(2, broken)
		require.NoError(t, err)
		assert.Equal(t, 3, sent)
		assert.Equal(t, 2*reconnects, time.Since(began), "all connections may be broken, and not all have been noticed")
		_, err = failing(10, broken)
		require.ErrorIs(t, err, broken)
		for _, other := range []error{rpctypes.ErrNoSpace, rpctypes.ErrPermissionDenied} {
			_, err = failing(1, other)
			require.ErrorIs(t, err, other)
		}
	})
}

func TestOpen_keepalive(t *testing.T) {
	for query, want := range map[string][2]time.Duration{
		"":                   {10 * time.Second, 3 * time.Second},
		"keepalive_time=1m":  {time.Minute, 3 * time.Second},
		"keepalive_time=10s": {10 * time.Second, 3 * time.Second},
		"keepalive_time=20s&keepalive_timeout=5s": {20 * time.Second, 5 * time.Second},
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		c, err := clientConfig(t.Context(), &driver.URL{Scheme: "etcd", Query: values}, nil)
		require.NoError(t, err)
		assert.Equal(t, want, [2]time.Duration{c.DialKeepAliveTime, c.DialKeepAliveTimeout})
		assert.Empty(t, values)
	}
}

// read is open without the client, which connects if there is a user.
func read(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	_, err := clientConfig(ctx, u, nil)
	return nil, err
}

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, plainScheme, read, "h1:1,[::1]/?dial_timeout=1s&keepalive_time=20s&keepalive_timeout=1s", "h/x", "h?tls_ca=x")
}

func FuzzOpen_tls(f *testing.F) {
	fuzzurl.Run(f, plainScheme+"s", read, "h?tls_ca=ca.pem&tls_cert=c.pem&tls_key=k.pem&tls_server_name=n", "h?tls_skip_verify=true")
}

// Queues are longer than a page, keys of others stand between those of locks, and some names are
// hashes.
func TestList_goesThroughAllKeys(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	prefix := strings.Split(claims.Fresh(), ":")[0] + fmt.Sprint(time.Now().UnixNano()) + ":"
	session, err := d.cli.Grant(t.Context(), 60)
	require.NoError(t, err)
	put := func(keys ...string) {
		for some := range slices.Chunk(keys, 100) {
			var ops []clientv3.Op
			for _, key := range some {
				ops = append(ops, clientv3.OpPut(key, "", clientv3.WithLease(session.ID)))
			}
			_, err := d.cli.Txn(t.Context()).Then(ops...).Commit()
			require.NoError(t, err)
		}
	}
	var want, keys []string
	for _, name := range []string{"a", "a/b", "a%", "a0", "b", "c"} {
		want = append(want, prefix+name)
		for range 2*keysPerPage/5 + 1 {
			keys = append(keys, newPlace(prefix+name, sessions.NewOwner()).key)
		}
	}
	long := prefix + strings.Repeat("d", sessions.LongName+1)
	keys = append(keys, newPlace(long, sessions.NewOwner()).key, prefix+"a/note", prefix+"a0", prefix+"d/note", newPlace(prefix+"e", sessions.NewOwner()).tombstone, prefix+"%2f/"+sessions.NewOwner())
	put(keys...)
	slices.Sort(want)
	names, unnamed, pages := claims.List(t, d, prefix)
	assert.Equal(t, want, names, "each once")
	assert.Equal(t, 1, unnamed)
	assert.Less(t, pages, 8)
	names, unnamed, _ = claims.List(t, d, prefix+"a/")
	assert.Equal(t, []string{prefix + "a/b"}, names)
	assert.Equal(t, 1, unnamed, "it may begin so")
	names, _, _ = claims.List(t, d, prefix+"x")
	assert.Empty(t, names)

	// A page ends among keys of others, in a folder that a contender comes later in.
	var notes []string
	for i := range keysPerPage {
		notes = append(notes, fmt.Sprintf("%sn/!%04d", prefix, i))
	}
	put(append(notes, newPlace(prefix+"n", sessions.NewOwner()).key)...)
	names, _, _ = claims.List(t, d, prefix+"n")
	assert.Equal(t, []string{prefix + "n"}, names)
	_, err = d.cli.Revoke(t.Context(), session.ID)
	require.NoError(t, err)
}
