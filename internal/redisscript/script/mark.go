package script

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// The mark, by which tokens rise though names are forgotten.
//
// A name's hash is gone KEEP after its last hold, and with it the last token. The mark is one hash
// for all names under a prefix (in a Redis Cluster: of a slot), which outlives them; lua/lib/mark.lua
// has its fields. A name that the server does not know gets a token above the mark's floor, and above
// the clock, which has passed all other tokens by then.
//
// To write the mark with each grant would cost every lock a second key. So it covers the grants of
// the next second (COVER): a reply says until when, by the server's clock, and requests bring that
// back as the first value of their Due. A grant that is not covered writes the mark first.
//
// Invariants. (1) No grant comes later than COVER after the mark was last written, so that a clock
// that was set back is found out by whoever takes a forgotten name. (2) The mark is written before
// the grant that needs it, in the same step. (3) A cover counts by the clock of the server that gave
// it: after a failover, or behind a proxy, another server's reply takes it back. A lost reply leaves
// the cover unknown: the next grant writes the mark again, which harms nothing.
//
// What it cannot show is in docs/evidence/protocols.md#the-gap. TestForgotten_tokensRise fails
// without any one part.

// Marks has what is known of the marks of a server, or of a Redis Cluster.
type Marks struct {
	cluster bool // set once

	mu   sync.Mutex // guards:
	all  map[markOf]*Mark
	tags map[string]*[slots]uint32 // by prefix, see tagsOf
}

const slots = 16384 // of a Redis Cluster

// markOf is what has a mark of its own: a prefix, and in a Redis Cluster a slot.
type markOf struct {
	prefix string
	slot   uint16
}

// Mark is what is known of one mark.
type Mark struct {
	Tag     string       // what makes its key fall into the slot
	covered atomic.Int64 // until when, by the server's clock in µs, grants need not write it
}

// NewMarks returns the marks of a server, or of a Redis Cluster.
func NewMarks(cluster bool) *Marks {
	return &Marks{cluster: cluster, all: map[markOf]*Mark{}, tags: map[string]*[slots]uint32{}}
}

// Of returns the mark for the lock that is called name.
func (m *Marks) Of(name string) *Mark {
	of := markOf{prefix: prefixOf(name)}
	if m.cluster {
		of.slot = crc16(0, tagEscape.Replace(name)) % slots
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.all[of]; known != nil {
		return known
	}
	it := &Mark{}
	if m.cluster {
		if m.tags[of.prefix] == nil {
			m.tags[of.prefix] = tagsOf(tagEscape.Replace(of.prefix))
		}
		it.Tag = strconv.Itoa(int(m.tags[of.prefix][of.slot]))
	}
	m.all[of] = it
	return it
}

// MarkKey returns the key of the mark for the lock called name. In a Redis Cluster it has the
// lock's slot.
func MarkKey(name string, cluster bool) string {
	return "{" + tagEscape.Replace(prefixOf(name)) + "%mark" + NewMarks(cluster).Of(name).Tag + "}"
}

// prefixOf returns what has a mark of its own of a name: up to its first colon.
func prefixOf(name string) string { return name[:strings.IndexByte(name, ':')+1] }

// OnGrant takes in a grant. What the mark of another server covers, as of one that a failover or a
// proxy has led to, does not count here.
func (m *Mark) OnGrant(a Answer) {
	if a.covered > 0 || m.covered.Load() > a.Now+coverMicros {
		m.covered.Store(a.covered)
	}
}

// coverMicros is COVER of mark.lua.
const coverMicros = 1_000_000

// tagsOf returns, for each slot, the number that makes the key of a mark fall into it. It takes
// some 20 ms.
func tagsOf(prefix string) *[slots]uint32 {
	sum, tags := crc16(0, prefix+"%mark"), new([slots]uint32)
	for i, left := uint32(1), slots; left > 0; i++ {
		if slot := crc16(sum, strconv.Itoa(int(i))) % slots; tags[slot] == 0 {
			tags[slot] = i
			left--
		}
	}
	return tags
}

// crc16 goes on from sum with text: CRC16 (XMODEM), by which the Redis Cluster specification has
// keys fall into slots.
func crc16(sum uint16, text string) uint16 {
	for i := range len(text) {
		sum ^= uint16(text[i]) << 8
		for range 8 {
			sum = sum<<1 ^ sum>>15*0x1021
		}
	}
	return sum
}
