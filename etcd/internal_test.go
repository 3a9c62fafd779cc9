package etcd

import (
	"context"
	"encoding/hex"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

func TestFolder_noTwoNamesShareOneAndNoneIsWithinAnother(t *testing.T) {
	long := strings.Repeat("x", longName)
	names := []string{
		"a:b", "a:b/", "a:b/c", "a:b%2F", "a:b%252F", "a:b%", "a:b%/dead", "a:b%/dead/", "a:%", "a:/", "a://", "a: ", "a:b\x00", "a:b\n",
		"a:b:c", "a/b:c", "a:c", "b", "b:b", "a:é", "a:e\u0301", "a:" + long, "a:" + long + "y", "a:" + long + "z",
		"a:" + escape(long+"y"), "a:{b}", "a:*", "a:\x7f", "a/:b",
	}
	of := map[string]string{}
	for _, name := range names {
		f := folderOf(name)
		require.True(t, strings.HasSuffix(f, "/"), name)
		require.Less(t, len(f), longName+100, "an escaped name of any length makes a short key")
		for other, g := range of {
			assert.False(t, strings.HasPrefix(f, g) || strings.HasPrefix(g, f), "%q is %q and %q is %q", name, f, other, g)
		}
		of[name] = f
	}
	assert.Equal(t, "locker:orders%2F42/", folderOf("locker:orders/42"), "people read it")
	assert.Equal(t, "/apps/shop:é/", folderOf("/apps/shop:é"), "a prefix is as the user wrote it")
}

// Whatever two names there are: neither stands in the other's folder, and nothing but what is ours is taken for it.
func FuzzFolder(f *testing.F) {
	long := strings.Repeat("x", longName)
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
		p, q := newPlace("p:"+a, newOwner()), newPlace("p:"+b, newOwner())
		for _, x := range []string{p.key, p.dead} {
			if a != b && strings.HasPrefix(x, q.folder) {
				t.Errorf("%q of %q is in the folder of %q", x, a, b)
			}
			if !strings.HasPrefix(x, "p:") || len(x) > len("p:")+longName+100 {
				t.Errorf("%q is not below the prefix, or long", x)
			}
		}
		if strings.HasPrefix(p.dead, p.folder) {
			t.Errorf("the mark %q stands in the queue", p.dead)
		}
		if !isContender(&mvccpb.KeyValue{Key: []byte(p.key), Lease: 1}, p.folder) {
			t.Errorf("%q is not found in the queue", p.key)
		}
		// Others may have put any key there.
		foreign := &mvccpb.KeyValue{Key: []byte(p.folder + b), Lease: 1}
		if _, err := hex.DecodeString(b); isContender(foreign, p.folder) && (err != nil || len(b) != 2*ownerBytes || strings.ToLower(b) != b) {
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

func TestExplain(t *testing.T) {
	open := context.Background()
	ended, cancel := context.WithCancel(open)
	cancel()
	require.NoError(t, explain(ended, ended, nil))
	assert.Equal(t, context.Canceled, explain(ended, ended, errors.New("x")), "the caller's own")
	err := explain(open, ended, context.DeadlineExceeded)
	require.ErrorContains(t, err, "etcd has not answered in time")
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context has not ended")
	err = explain(open, open, rpctypes.ErrLeaseNotFound)
	require.ErrorIs(t, err, errSessionEnded)
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
	require.ErrorIs(t, asLost(err), locker.ErrLost)
	require.NotErrorIs(t, asLost(rpctypes.ErrNoLeader), locker.ErrLost)
	assert.Equal(t, rpctypes.ErrNoLeader, explain(open, open, rpctypes.ErrNoLeader))
}

// A server that is busy with authentication goes on with it when nobody waits any more, and is not to be asked at once again.
func TestOutage_isPatientWithAuthentication(t *testing.T) {
	patience := func(user string) time.Duration {
		return newDriver(&clientv3.Client{Username: user}).newOutage(6*time.Second, unheard).Patience
	}
	assert.Equal(t, 300*time.Millisecond, patience(""))
	assert.Equal(t, time.Second, patience("alice"))
}

// A request ends at its time, of which the server is not told.
func TestRequest_hasNoDeadlineAndEndsAllTheSame(t *testing.T) {
	outer, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	r, done := withTimeout(outer, 10*time.Millisecond)
	defer done()
	_, ok := r.Deadline()
	assert.False(t, ok)
	assert.Same(t, r, requestOf(context.WithoutCancel(r)))
	<-r.Done()
	assert.NoError(t, outer.Err())
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
		c, err := clientConfig(t.Context(), &driver.URL{Scheme: "etcd", Query: values})
		require.NoError(t, err)
		assert.Equal(t, want, [2]time.Duration{c.DialKeepAliveTime, c.DialKeepAliveTimeout})
		assert.Empty(t, values)
	}
}
