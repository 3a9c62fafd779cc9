package main

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

func TestMain(m *testing.M) {
	logging.Disable() // as in main
	serveKill()
	os.Exit(m.Run())
}

// Every part, in brief, has figures of every library, and a row of the page.
func TestRun_measuresEveryLibraryOnRealServers(t *testing.T) {
	programs := map[string]string{
		"redis": "redis-server", "quorum": "redis-server", "etcd": "etcd", "zookeeper": "zookeeper-server", "postgres": "postgres",
	}
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			testserver.Need(t, programs[s.name])
			dir := t.TempDir()
			file, page := filepath.Join(dir, "bench.json"), filepath.Join(dir, "bench.md")
			require.NoError(t, run(t.Context(), []string{"-quick", "-only", s.name, "-json", file, "-page", page}, t.Output()))
			b, err := load(file)
			require.NoError(t, err)
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			require.Len(t, b.Tables, len(s.parts))
			for i, p := range s.parts {
				checkTable(t, b.Tables[i], s, p)
				assert.Contains(t, string(text), "\n### "+s.title+": "+p.name+"\n")
			}
			if s.name != "redis" {
				return
			}
			chart := filepath.Join(dir, "chart.svg")
			require.NoError(t, run(t.Context(), []string{"-render", "-json", file, "-page", page, "-chart", chart}, t.Output()))
			assert.FileExists(t, chart)
			again, err := os.ReadFile(page)
			require.NoError(t, err)
			assert.Equal(t, string(text), string(again), "the page of the figures that were read back")
		})
	}
}

func checkTable(t *testing.T, got *table, s subject, p part) {
	t.Helper()
	for _, l := range s.libraries {
		found := false
		for _, r := range got.Rows {
			if r.Library != l.name {
				continue
			}
			found = true
			for column, values := range r.Figures {
				sum := 0.0
				for _, v := range values {
					sum += v
				}
				switch {
				case column == columns[p.name][0] && p.name != "held" && p.name != "idle" && p.name != "names":
					assert.Positive(t, sum, "%s/%s of %s: %s", s.name, p.name, l.name, column)
				case column == "overlaps" || column == "lost":
					assert.Zero(t, sum, "%s/%s of %s: %s", s.name, p.name, l.name, column)
				}
			}
		}
		if p.name != "held" { // of those that renew
			assert.Equal(t, !slices.Contains(p.without, l.name), found, "%s/%s: a row of %s", s.name, p.name, l.name)
		}
	}
}

func TestRun_saysWhatItDoesNotKnow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	require.ErrorContains(t, run(t.Context(), []string{"-json", file, "-only", "oracle"}, t.Output()), "oracle")
	require.Error(t, run(t.Context(), []string{"-json", file, "redis"}, t.Output()))
}

// The ratio is to the same round's, in the same cell: 2/1, 9/3 and 4/2.
func TestPrint_ratioIsWithinTheRound(t *testing.T) {
	tb := &table{What: "pairs"}
	for _, f := range []float64{1, 3, 2} {
		tb.add("c", "base", figures{"pair µs": f, "errors": 1})
	}
	for _, f := range []float64{2, 9, 4} {
		tb.add("c", "ours", figures{"pair µs": f})
	}
	var out strings.Builder
	tb.print(&out, "base")
	assert.Contains(t, out.String(), "|c|ours|4.00 (2.00–9.00)|2.00 (2.00–3.00)|")
}

func TestCost_chargesAScriptOnceAndLeavesOutWhatKeepsSessionsAlive(t *testing.T) {
	start := time.Now()
	before := look{
		at: start, sent: map[string]int64{"evalsha": 10, keepAlive: 1},
		ran: map[string]commandTotals{"evalsha": {10, 100}, "get": {10, 20}},
	}
	after := look{
		at: start.Add(2 * time.Second), sent: map[string]int64{"evalsha": 15, "set": 1, keepAlive: 3},
		ran: parseCommandStats(map[string]string{
			"cmdstat_evalsha": "calls=15,usec=300,usec_per_call=4.00", "cmdstat_get": "calls=20,usec=60",
			"cmdstat_set|x": "calls=3,usec=30", "cmdstat_set": "calls=1,usec=10", "redis_version": "7.0.15",
		}),
	}
	// All of the scripts' time, none of GET's, which they ran, and that of one SET in four.
	assert.Equal(t, cost{seconds: 2, sent: 6, run: 19, serverUs: 200 + 10}, after.since(before))
}

func TestRequestParser_findsCommandsHoweverTheStreamIsCut(t *testing.T) {
	request := func(args ...string) string {
		text := "*" + strconv.Itoa(len(args)) + "\r\n"
		for _, arg := range args {
			text += "$" + strconv.Itoa(len(arg)) + "\r\n" + arg + "\r\n"
		}
		return text
	}
	stream := request("SET", "k", "") +
		request("EVALSHA", "abc", "1", "k", request("FLUSHALL")+"$4\r\n") + // only looks like more of them
		request("PING") + request("EVAL", "return 1\r\n*1\n", "0")
	for size := 1; size <= len(stream); size++ {
		var got []string
		p := requestParser{command: func(name []byte) { got = append(got, string(name)) }}
		for piece := range slices.Chunk([]byte(stream), size) {
			p.feed(piece)
		}
		require.Equal(t, []string{"SET", "EVALSHA", "PING", "EVAL"}, got, "in pieces of %d bytes", size)
	}
}

func TestZooKeeperConn_countsPacketsHoweverTheStreamIsCutAndNoPings(t *testing.T) {
	frame := func(number, operation int32, more int) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(8+more))
		b = binary.BigEndian.AppendUint32(b, uint32(number))
		b = binary.BigEndian.AppendUint32(b, uint32(operation))
		return append(b, bytes.Repeat([]byte{7}, more)...)
	}
	stream := slices.Concat(frame(0, 99, 36), frame(1, 1, 40), frame(-2, 11, 0), frame(2, 12, 1))
	for size := 1; size <= len(stream); size++ {
		sent := newTally()
		c := &zooKeeperConn{Conn: &net.TCPConn{}, tally: sent}
		for piece := range slices.Chunk(stream, size) {
			c.feed(piece)
		}
		require.Equal(t, map[string]int64{"1": 1, "12": 1}, sent.snapshot(), "in pieces of %d bytes", size)
	}
}
