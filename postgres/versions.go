package postgres

import "sync"

// versions remembers what this Driver's last release of a lock left, by key. Who remembers the version need not look before it takes.
type versions struct {
	mu sync.Mutex
	of map[string]remembered
}

type remembered struct {
	version int64
	waited  bool // others may wait, too
}

const mostVersions = 4096

func (v *versions) remember(key []byte, r remembered) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = map[string]remembered{}
	}
	if len(v.of) >= mostVersions {
		for other := range v.of { // any
			delete(v.of, other)
			break
		}
	}
	v.of[string(key)] = r
}

func (v *versions) recall(key []byte) remembered {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.of[string(key)]
}
