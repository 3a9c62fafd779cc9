package servers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestParseCommandStats_addsSubcommands(t *testing.T) {
	got := parseCommandStats(map[string]string{
		"cmdstat_get":             "calls=3,usec=12,usec_per_call=4.00,rejected_calls=0,failed_calls=0",
		"cmdstat_client|setinfo":  "calls=2,usec=5,usec_per_call=2.50,rejected_calls=0,failed_calls=0",
		"cmdstat_client|tracking": "calls=1,usec=7,usec_per_call=7.00,rejected_calls=0,failed_calls=0",
		"redis_version":           "7.0.15",
	})
	assert.Equal(t, map[string]commandTotals{"get": {3, 12}, "client": {3, 12}}, got)
}

func TestLoad_isTheDifferenceAndChargesAScriptOnceAndLeavesOutWhatKeepsSessionsAlive(t *testing.T) {
	start := time.Now()
	before := look{
		at:   start,
		sent: map[string]int64{"evalsha": 10, "hello": 4, keepAlive: 1},
		ran:  map[string]commandTotals{"evalsha": {10, 100}, "get": {10, 20}, "hello": {4, 8}},
	}
	after := look{
		at:   start.Add(2 * time.Second),
		sent: map[string]int64{"evalsha": 15, "hello": 4, "set": 1, keepAlive: 3},
		ran:  map[string]commandTotals{"evalsha": {15, 300}, "get": {20, 60}, "hello": {4, 8}, "set": {4, 40}},
	}
	assert.Equal(t, Load{
		Seconds:   2,
		Sent:      6,
		Run:       19,
		SentNames: map[string]int64{"evalsha": 5, "set": 1, keepAlive: 2},
		RunNames:  map[string]int64{"evalsha": 5, "get": 10, "set": 4},
		// All of the scripts' time, none of GET's, which they ran, and that of one SET in four.
		Microseconds: 200 + 10,
	}, after.since(before))
}

func TestLoad_adds(t *testing.T) {
	one := Load{
		Seconds: 1, Sent: 2, Run: 3, Microseconds: 4,
		SentNames: map[string]int64{"set": 2}, RunNames: map[string]int64{"set": 2, "del": 1},
	}
	two := Load{Seconds: 1, Sent: 1, Run: 1, SentNames: map[string]int64{"get": 1}, RunNames: map[string]int64{"get": 1}}
	assert.Equal(t, Load{
		Seconds: 2, Sent: 3, Run: 4, Microseconds: 4,
		SentNames: map[string]int64{"set": 2, "get": 1}, RunNames: map[string]int64{"set": 2, "del": 1, "get": 1},
	}, one.Add(two))
	assert.Equal(t, map[string]int64{"set": 2}, one.SentNames, "neither changes")
}
