package postgres

import "sync"

// versions remembers the version that this Driver's last release of a lock left, by key. Who remembers it need not look before it
// takes: if another has held the lock meanwhile, the take finds another version, and takes nothing.
type versions struct {
	mu sync.Mutex
	of map[string]int64
}

const mostVersions = 4096

func (v *versions) remember(key []byte, version int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = map[string]int64{}
	}
	if len(v.of) >= mostVersions {
		for other := range v.of { // any
			delete(v.of, other)
			break
		}
	}
	v.of[string(key)] = version
}

// take returns what is remembered, and forgets it.
func (v *versions) take(key []byte) (version int64, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	version, ok = v.of[string(key)]
	delete(v.of, string(key))
	return version, ok
}
