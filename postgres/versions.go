package postgres

import "sync"

// versions remembers the version of a lock's row that this Driver has seen last, by key. Who remembers it need not look before it takes.
type versions struct {
	mu sync.Mutex
	of map[string]remembered
}

type remembered struct{ era, version int64 }

const mostVersions = 4096

func (v *versions) remember(key []byte, era, version int64) {
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
	v.of[string(key)] = remembered{era, version}
}

// recall returns the version in this era, or that of new rows.
func (v *versions) recall(key []byte, now era) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r := v.of[string(key)]; r.era == now.number {
		return r.version
	}
	return now.version
}
