package testserver

import (
	"fmt"
	"strconv"
	"strings"
)

// SlotMove is a slot of a cluster on its way from one primary to another. Until it is finished the
// source serves the keys that it has, and sends clients that ask for others to the target (ASK).
type SlotMove struct {
	c        *RedisCluster
	slot     string
	from, to *RedisServer
}

// MoveSlot moves the slot of key, with all keys in it, to another primary, and returns when all
// nodes know.
func (c *RedisCluster) MoveSlot(key string, to *RedisServer) {
	c.t.Helper()
	c.StartMove(key, to).Finish()
}

// StartMove begins to move the slot of key to another primary. No key has moved when it returns.
func (c *RedisCluster) StartMove(key string, to *RedisServer) *SlotMove {
	c.t.Helper()
	m := &SlotMove{c: c, slot: strconv.Itoa(keySlot(key)), from: c.PrimaryOf(key), to: to}
	if m.from == to {
		c.t.Fatalf("testserver: %s serves %q already", to.Addr(), key)
	}
	setSlot := func(at *RedisServer, state string, other *RedisServer) {
		await(c.t, at.Addr()+" knows of "+other.Addr()+" that it is a primary", func() error { // which gossip tells it
			_, err := at.do("CLUSTER", "SETSLOT", m.slot, state, c.id(other))
			return err
		})
	}
	setSlot(to, "IMPORTING", m.from)
	setSlot(m.from, "MIGRATING", to)
	return m
}

// MoveKeys moves the keys that are in the slot. The source now sends everybody on (ASK).
func (m *SlotMove) MoveKeys() {
	m.c.t.Helper()
	for {
		keys, _ := m.from.must("CLUSTER", "GETKEYSINSLOT", m.slot, "100").([]any)
		if len(keys) == 0 {
			return
		}
		for _, key := range keys {
			m.MoveKey(fmt.Sprint(key))
		}
	}
}

// MoveKey moves one key. It fails if the target has a key of that name, as `redis-cli --cluster
// reshard` does.
func (m *SlotMove) MoveKey(key string) {
	m.c.t.Helper()
	m.from.must("MIGRATE", "127.0.0.1", strconv.Itoa(m.to.port), "", "0", "5000", "AUTH2", operator, operator, "KEYS", key)
}

// Finish moves the keys that are left and makes the target the owner of the slot (MOVED). It returns
// when all nodes know.
func (m *SlotMove) Finish() {
	m.c.t.Helper()
	m.MoveKeys()
	target := m.c.id(m.to)
	// The target first: between the two, the source knows where to send clients.
	for _, s := range []*RedisServer{m.to, m.from} {
		s.must("CLUSTER", "SETSLOT", m.slot, "NODE", target)
	}
	slot, _ := strconv.Atoi(m.slot)
	m.c.awaitOwner(slot, m.to)
}

// keySlot returns the slot of key in a Redis Cluster: CRC16 (XMODEM) of the key, or of what stands
// between its first "{" and the next "}" unless that is empty.
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model
func keySlot(key string) int {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % slots
}
