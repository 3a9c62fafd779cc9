package redisscript

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// marks has what is known of the marks of a server, or of a Redis Cluster; see mark.lua.
type marks struct {
	cluster bool
	mu      sync.Mutex
	all     map[markOf]*mark
	tags    map[string]*[slots]uint32 // by prefix, see tagsOf
}

const slots = 16384 // of a Redis Cluster

// markOf is what has a mark of its own: a prefix, and in a Redis Cluster a slot.
type markOf struct {
	prefix string
	slot   uint16
}

type mark struct {
	tag     string       // what makes its key fall into the slot
	covered atomic.Int64 // until when, by the server's clock in µs, grants need not write it
}

func newMarks(cluster bool) marks {
	return marks{cluster: cluster, all: map[markOf]*mark{}, tags: map[string]*[slots]uint32{}}
}

// of returns the mark for the lock that is called name.
func (m *marks) of(name string) *mark {
	of := markOf{prefix: prefixOf(name)}
	if m.cluster {
		of.slot = slotOf(crc16(0, tagEscape.Replace(name)))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.all[of]; known != nil {
		return known
	}
	it := &mark{}
	if m.cluster {
		if m.tags[of.prefix] == nil {
			m.tags[of.prefix] = tagsOf(tagEscape.Replace(of.prefix))
		}
		it.tag = strconv.Itoa(int(m.tags[of.prefix][of.slot]))
	}
	m.all[of] = it
	return it
}

// MarkKey returns the key of the mark for the lock called name. In a Redis Cluster it has the
// lock's slot.
func MarkKey(name string, cluster bool) string {
	prefix := prefixOf(name)
	tag := ""
	if cluster {
		tag = strconv.Itoa(int(tagsOf(tagEscape.Replace(prefix))[slotOf(crc16(0, tagEscape.Replace(name)))]))
	}
	return "{" + tagEscape.Replace(prefix) + "%mark" + tag + "}"
}

// prefixOf returns what has a mark of its own of a name: up to its first colon.
func prefixOf(name string) string { return name[:strings.IndexByte(name, ':')+1] }

// onGrant takes in a grant. What the mark of another server covers, as of one that a failover or a
// proxy has led to, does not count here.
func (m *mark) onGrant(a answer) {
	if a.covered > 0 || m.covered.Load() > a.now+coverMicros {
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
		if slot := slotOf(crc16(sum, strconv.Itoa(int(i)))); tags[slot] == 0 {
			tags[slot] = i
			left--
		}
	}
	return tags
}

func slotOf(sum uint16) uint16 { return sum % slots }

// crc16 goes on from sum with text: CRC16 (XMODEM), by which the Redis Cluster specification has
// keys fall into slots.
func crc16(sum uint16, text string) uint16 {
	for i := range len(text) {
		sum ^= uint16(text[i]) << 8
		for range 8 {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ 0x1021
			} else {
				sum <<= 1
			}
		}
	}
	return sum
}
