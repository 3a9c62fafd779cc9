package keyed

// InUse returns how many locks l keeps.
func InUse(l *Locks) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inUse)
}
