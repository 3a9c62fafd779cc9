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
}

// markOf is what has a mark of its own: a prefix, and in a Redis Cluster a slot.
type markOf struct {
	prefix string
	slot   uint16
}

type mark struct {
	tag     string       // what makes its key fall into the slot
	covered atomic.Int64 // until when, by the server's clock in µs, grants need not write it
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
	if m.all == nil {
		m.all = map[markOf]*mark{}
	}
	it := &mark{}
	if m.cluster {
		it.tag = tagFor(tagEscape.Replace(of.prefix), of.slot)
	}
	m.all[of] = it
	return it
}

// MarkKey returns the key of the mark for the lock called name. In a Redis Cluster it has the lock's slot.
func MarkKey(name string, cluster bool) string {
	prefix := prefixOf(name)
	tag := ""
	if cluster {
		tag = tagFor(tagEscape.Replace(prefix), slotOf(crc16(0, tagEscape.Replace(name))))
	}
	return "{" + tagEscape.Replace(prefix) + "%mark" + tag + "}"
}

// prefixOf returns what has a mark of its own of a name: up to its first colon.
func prefixOf(name string) string { return name[:strings.IndexByte(name, ':')+1] }

// saw takes in until when the mark covers grants; 0: the server did not say.
func (m *mark) saw(covered int64) {
	if covered > 0 {
		m.covered.Store(covered)
	}
}

// tagFor returns what makes the key of a mark fall into a slot.
func tagFor(prefix string, slot uint16) string {
	sum := crc16(0, prefix+"%mark")
	for i := 0; ; i++ {
		if tag := strconv.Itoa(i); slotOf(crc16(sum, tag)) == slot {
			return tag
		}
	}
}

func slotOf(sum uint16) uint16 { return sum % 16384 }

// crc16 goes on from sum with text: CRC16 (XMODEM), by which the Redis Cluster specification has keys fall into slots.
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
