package wire

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// frame has two numbers, and more bytes after them.
func frame(first, second int32, more int) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+more))
	b = binary.BigEndian.AppendUint32(b, uint32(first))
	b = binary.BigEndian.AppendUint32(b, uint32(second))
	return append(b, bytes.Repeat([]byte{7}, more)...)
}

func TestFrameParser_findsFramesHoweverTheStreamIsCut(t *testing.T) {
	stream := slices.Concat(frame(0, 99, 36), frame(1, 1, 40), frame(-2, 11, 0), frame(2, 2, 1))
	want := [][2]int32{{1, 1}, {-2, 11}, {2, 2}}
	for size := 1; size <= len(stream); size++ {
		var got [][2]int32
		p := frameParser{frame: func(first, second int32) { got = append(got, [2]int32{first, second}) }}
		for piece := range slices.Chunk(stream, size) {
			p.feed(piece)
		}
		require.Equal(t, want, got, "in pieces of %d bytes", size)
	}
}

func TestZooKeeperConn_countsRoundTripsAndNoPings(t *testing.T) {
	tally := NewTally()
	c := &zooKeeperConn{tally: tally}
	c.request(1, 1) // alone
	c.reply(1, 0)
	c.request(-2, 11)
	c.reply(-2, 0)
	c.request(2, 1) // two together
	c.request(3, 12)
	c.reply(-1, 0) // an event
	c.reply(2, 0)
	c.reply(3, 0)
	c.request(4, 4711) // alone
	c.reply(4, 0)
	assert.Equal(t, map[string]int64{"create": 2, "getchildren2": 1, "4711": 1}, tally.Snapshot())
	assert.EqualValues(t, 3, tally.Traffic().RoundTrips)
}
