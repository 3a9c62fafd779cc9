package natslock

// Key returns the key of a lock in its bucket.
func Key(name string) string { return digest(name) + ".lock" }
