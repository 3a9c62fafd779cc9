package zookeeper

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sessions"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/fuzzurl"
)

var oddNames = []string{
	"b", "b/", "b/c", "b%2F", "b%252F", "b%", "%", "/", "//", " ", ".", "..", "...", "./", "b\x00", "b\n", "b:c", "é", "e\u0301",
	"\u0085", "\ue000", "\uf8ff", "\ufff0", "\uffff", "\ufffd", "😀", "zookeeper", "%7Aookeeper", "{b}", "*", "\x7f",
	strings.Repeat("x", sessions.LongName), strings.Repeat("x", sessions.LongName+1), strings.Repeat("x", sessions.LongName+2), strings.Repeat("é", sessions.LongName),
}

// Whatever two names there are, and prefixes of users: each has a node of its own, two levels below
// the root of ours, and none that the server would refuse or take for another.
func FuzzEscape(f *testing.F) {
	for i, name := range oddNames {
		f.Add(name, oddNames[(i+1)%len(oddNames)])
	}
	f.Add("b%2F", "b/")
	f.Add(".", "%2E")
	f.Add("zookeeper", "%7Aookeeper")
	f.Add(strings.Repeat("x", sessions.LongName+1), escape(strings.Repeat("x", sessions.LongName+1)))
	f.Fuzz(func(t *testing.T, a, b string) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) {
			return // the core refuses them
		}
		name, ok := sessions.Unescape(escape(a), escape)
		if long := strings.HasPrefix(escape(a), sessions.HashMark); ok == (a == "" || long) || ok && name != a {
			t.Errorf("%q is listed as %q", a, name)
		}
		if (a == b) != (escape(a) == escape(b)) {
			t.Errorf("%q is %q and %q is %q", a, escape(a), b, escape(b))
		}
		for _, qualified := range []string{"p:" + a, strings.ReplaceAll(a, ":", "") + ":" + b, a} {
			rest, ours := strings.CutPrefix(nodeOf(parentOf("/root", qualified), strings.Repeat("0a", sessions.OwnerLen/2)), "/root/")
			levels := strings.Split(rest, "/")
			if !ours || len(levels) != 3 || levels[0] == "zookeeper" || path.Clean(rest) != rest || len(rest) > 3*sessions.LongName {
				t.Errorf("%q stands at /root/%q", qualified, rest)
			}
			for _, r := range rest {
				if r != '/' && r != '%' && !plain(r) {
					t.Errorf("%q has %q in it, which the server refuses", rest, r)
				}
			}
		}
	})
}

// What others may have put beside our nodes: only what is built as ours is taken for one, and it is
// what it says.
func FuzzParseContender(f *testing.F) {
	owner := strings.Repeat("0a", sessions.OwnerLen/2)
	for _, name := range []string{
		"", "note", nodePrefix + owner, nodePrefix + owner + nodeMiddle + "0000000012", nodePrefix + owner + nodeMiddle + "-2147483648",
		nodePrefix + owner + nodeMiddle + "+000000012", nodePrefix + owner + nodeMiddle + "00000000012", nodePrefix + owner + nodeMiddle + "-0000000000",
		nodePrefix + owner + nodeMiddle + "2147483648", "_c_" + owner + "-read-0000000012", nodePrefix + strings.ToUpper(owner) + nodeMiddle + "0000000012",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		c, ok := parseContender(name)
		if want := fmt.Sprintf("%s%s%s%010d", nodePrefix, c.owner, nodeMiddle, c.number); ok && want != name {
			t.Errorf("%q is taken for %q", name, want)
		}
		if (ok && c.counts()) != slices.Contains(inQueue([]string{name}), c) || ok != slices.Contains(contenders([]string{name}), c) {
			t.Errorf("%q is in the queue, or is not, depending on who asks", name)
		}
		mine := fmt.Sprint(nodePrefix, strings.Repeat("f", sessions.OwnerLen), nodeMiddle, lastNumber)
		own, _ := parseContender(mine)
		if before := ahead(inQueue([]string{mine, name}), own, false).ID; before != "" && before != name {
			t.Errorf("%q is ahead, of %q", before, name)
		}
	})
}

func TestAhead(t *testing.T) {
	name := func(owner byte, number int32) string {
		return fmt.Sprintf("_c_%s-lock-%010d", strings.Repeat(string(owner), sessions.OwnerLen), number)
	}
	queue := []string{name('d', 7), name('c', 12), name('b', lastNumber-1), name('a', lastNumber), "note", "lock-0000000000"}
	late := []string{name('1', lastNumber+1), name('0', math.MaxInt32), name('2', math.MaxInt32), name('3', math.MinInt32), name('4', -1)}
	all := append(slices.Clone(queue), late...)
	slices.Sort(all)
	before := map[byte]string{'d': "", 'c': name('d', 7), 'b': name('c', 12), 'a': name('b', lastNumber-1)}
	for owner, want := range before {
		i := slices.IndexFunc(inQueue(all), func(c contender) bool { return c.owner == strings.Repeat(string(owner), sessions.OwnerLen) })
		require.GreaterOrEqual(t, i, 0)
		assert.Equal(t, want, ahead(inQueue(all), inQueue(all)[i], false).ID, string(owner))
	}
	var names []string
	for _, c := range slices.SortedFunc(slices.Values(inQueue(all)), compare) {
		names = append(names, c.ID)
	}
	assert.Equal(t, queue[:4], names)
	assert.Len(t, contenders(all), 9, "those without a place are to be removed, too")
}

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, plainScheme, open, "h1:1,[::1]/apps/shop?dial_timeout=1s&tick=2s&acl=creator", "h/a//b?acl=world", "h?tls_ca=x")
}

func FuzzOpen_tls(f *testing.F) {
	fuzzurl.Run(f, plainScheme+"s", open, "h?tls_ca=ca.pem&tls_cert=c.pem&tls_key=k.pem&tls_server_name=n", "h/a?tls_skip_verify=true")
}

// On a connection that was made again answers wait until the library has sent its watches, however
// long that takes. The answer to who we are does not: they are sent after it.
func TestLink_answersComeAfterTheWatches(t *testing.T) {
	const getData = 4
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		l := &link{Conn: client}
		l.holdReads()
		send := func(op uint32) {
			request := make([]byte, 12)
			binary.BigEndian.PutUint32(request[8:], op)
			go func() { _, _ = server.Read(make([]byte, len(request))) }()
			_, err := l.Write(request)
			require.NoError(t, err)
		}
		type read struct {
			n   int
			err error
		}
		answer := func() <-chan read {
			got := make(chan read, 1)
			go func() {
				n, err := l.Read(make([]byte, 6))
				got <- read{n, err}
			}()
			go func() { _, _ = server.Write([]byte("answer")) }()
			return got
		}
		send(opSetAuth)
		assert.Equal(t, read{n: 6}, <-answer())
		send(getData)
		got := answer()
		time.Sleep(time.Minute)
		assert.Empty(t, got)
		send(opSetWatches)
		assert.Equal(t, read{n: 6}, <-got)
		assert.Equal(t, read{n: 6}, <-answer())
		require.NoError(t, l.Close())
		require.NoError(t, server.Close())
	})
	synctest.Test(t, func(t *testing.T) { // they never are
		client, server := net.Pipe()
		l := &link{Conn: client}
		l.holdReads()
		l.asked.Store(true)
		go func() { _, _ = server.Write([]byte("answer")) }()
		closed := time.AfterFunc(time.Minute, func() { _ = l.Close() })
		defer closed.Stop()
		n, err := l.Read(make([]byte, 6))
		require.ErrorIs(t, err, net.ErrClosed)
		assert.Zero(t, n)
		require.NoError(t, server.Close())
	})
}

// While other servers can be asked, a silent one is left soon, twice round; then each has time,
// until there is a session.
func TestNetwork_howLongAServerMayBeSilent(t *testing.T) {
	const ttl = 24 * time.Second
	long, short := pace(ttl)/3, pace(ttl)/8
	assert.Less(t, short, long)
	for servers, want := range map[int][]time.Duration{
		1: {long, long},
		2: {short, short, long, long},
		4: {short, short, short, short, short, short, long, long},
	} {
		n := newNetwork(t.Context(), &backend{servers: make([]string, servers)}, ttl)
		var got []time.Duration
		for range want {
			got = append(got, n.connectTimeout())
			n.timeouts++
		}
		assert.Equal(t, want, got, "%d servers", servers)
		n.current = new(link)
		n.established(new(zk.Conn))
		assert.Equal(t, want[0], n.connectTimeout(), "%d servers, after there was a session", servers)
	}
}

// The library answers a request that it could not write twice, which blocks it for good. So it
// never hears of one.
func TestLink_aWriteThatFailsClosesTheConnection(t *testing.T) {
	client, server := net.Pipe()
	require.NoError(t, server.Close())
	l := &link{Conn: client}
	n, err := l.Write([]byte("request"))
	require.NoError(t, err)
	assert.Equal(t, len("request"), n)
	_, err = client.Write(nil)
	require.ErrorIs(t, err, io.ErrClosedPipe, "it is closed")
}

// Versions before 3.6 may say after a restart that a node's children last changed in an earlier
// transaction than they did. A server may be told not to say its version, and what stands before it
// may not know the question.
func TestVersion_thatIsTooOldIsRefused(t *testing.T) {
	t.Parallel()
	const name, old = "Zookeeper version: ", "-83df9301aa5c2a5d284a9940177808c01bc35cef\nLatency min/avg/max: 0/0.0/0\n"
	for says, refused := range map[string]bool{
		name + "3.4.14" + old: true, name + "3.5.9" + old: true, name + "3.5.5.7.1.4" + old: true,
		name + "3.6.0" + old: false, name + "3.10.1" + old: false, name + "4.0.0" + old: false,
		"srvr is not executed because it is not in the whitelist.\n": false, "\n": false, "it hangs": false,
		"HTTP/1.1 400 Bad Request\r\n": false, name + "next-generation": false, name + "3.1": false,
		name + string(make([]byte, 1<<20)): false,
	} {
		var dials atomic.Int64
		d := driverOf(t, Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) != 2 { // the second asks for the version
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			client, server := net.Pipe()
			go func() {
				_, _ = server.Read(make([]byte, len("srvr")))
				if says != "it hangs" {
					_, _ = io.WriteString(server, says)
					_ = server.Close()
				}
			}()
			return client, nil
		}))
		for range 2 {
			l, err := claims.Take(t.Context(), d, driver.Request{Name: claims.Fresh(), TTL: longTTL})
			if !refused {
				require.NoError(t, err, says)
				require.NoError(t, l.Release(t.Context()))
				continue
			}
			require.ErrorIs(t, err, driver.ErrUnsupported, says)
			require.ErrorContains(t, err, "ZooKeeper "+strings.TrimPrefix(strings.TrimSuffix(says, old), name))
			require.ErrorContains(t, err, "use version 3.6 or later")
			dials.Store(0) // another session
		}
		assert.LessOrEqual(t, dials.Load(), int64(2), "it is asked once")
	}
}
