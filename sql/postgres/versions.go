package postgres

import "sync"

// versions remembers what this Driver has seen last of a lock's row, by key: its version, so that
// who takes the lock need not look before, and whether others want it.
type versions struct {
	mu sync.Mutex
	of map[string]remembered
}

type remembered struct {
	era, version int64
	wanted       bool
}

const mostVersions = 4096

func (v *versions) remember(key []byte, r remembered) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = map[string]remembered{}
	}
	if _, ok := v.of[string(key)]; !ok && len(v.of) >= mostVersions {
		for other := range v.of { // any
			delete(v.of, other)
			break
		}
	}
	v.of[string(key)] = r
}

// recall returns what was seen in this era, or else that new rows have this version.
func (v *versions) recall(key []byte, now era) (r remembered, seen bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r := v.of[string(key)]; r.era == now.number {
		return r, true
	}
	return remembered{era: now.number, version: now.version}, false
}
