// Package knownbreaks lists, by the scenario of package conformance, the promises that backends are
// known to break, and why.
package knownbreaks

// Redis returns what a server of Redis cannot keep, by adapters that ask one server.
func Redis() map[string]string {
	return map[string]string{
		"a hold lasts though the server loses its data":                         "the lock is a key of one server, and is lost with the server's data",
		"a hold lasts though the server that lags most takes over":              "replication is asynchronous: the replica that is promoted has not heard of the lock",
		"a hold lasts though the server's clock jumps forward":                  "a key expires by the server's wall clock",
		"a hold expires though the server's clock jumps back":                   "a key expires by the server's wall clock: if the clock is set back by an hour, the lock stays taken for an hour longer",
		"a random history is that of one lock though servers lose their data":   "the lock is a key of one server, and is lost with the server's data",
		"a random history is that of one lock though another server takes over": "replication is asynchronous",
		"a random history is that of one lock though the server's clock jumps":  "a key expires by the server's wall clock",
	}
}

// Redlock returns what a quorum of servers of Redis cannot keep.
func Redlock() map[string]string {
	return map[string]string{
		"a hold lasts though the server loses its data":                         "all nodes forget the lock; the loss of a majority would be enough",
		"a hold lasts though the server that lags most takes over":              "a node of the majority has restarted without its data, and votes once more",
		"a hold lasts though the server's clock jumps forward":                  "keys expire by the servers' wall clocks, which all jump at once here",
		"a hold expires though the server's clock jumps back":                   "keys expire by the servers' wall clocks, which all jump at once here",
		"a random history is that of one lock though servers lose their data":   "all nodes forget the lock; the loss of a majority would be enough",
		"a random history is that of one lock though another server takes over": "a node of the majority has restarted without its data, and votes once more",
		"a random history is that of one lock though the server's clock jumps":  "keys expire by the servers' wall clocks, which all jump at once here",
	}
}

// Consensus returns what servers that agree among themselves cannot keep either.
func Consensus() map[string]string {
	return map[string]string{
		"a hold lasts though the server loses its data":                       "all servers have lost what they knew",
		"tokens rise though the server loses its data":                        "tokens are the backend's own count of changes, and an empty backend counts from the start; WithTokenBase makes tokens larger than the old ones",
		"a random history is that of one lock though servers lose their data": "all servers have lost what they knew",
		"tokens of a random history rise though servers lose their data":      "tokens are the backend's own count of changes, and an empty backend counts from the start; WithTokenBase makes tokens larger than the old ones",
	}
}

// ZooKeeper returns what its sessions cannot keep, on any servers.
func ZooKeeper() map[string]string {
	const session = "if requests arrive but answers are lost, the client's last connection keeps the session alive for one TTL more, so the session ends within two TTLs, not within one"
	return map[string]string{
		"a take whose reply was lost leaves nothing behind":  session,
		"a share whose reply was lost leaves nothing behind": session,
	}
}

// Postgres returns what one server of PostgreSQL cannot keep.
func Postgres() map[string]string {
	return map[string]string{
		"a hold lasts though the server loses its data":                        "the lock is a row, and is lost with the server's data",
		"a random history is that of one lock though servers lose their data":  "the lock is a row, and is lost with the server's data",
		"a hold lasts though the server's clock jumps forward":                 "a row expires by the server's clock",
		"a hold expires though the server's clock jumps back":                  "a row expires by the server's clock",
		"a random history is that of one lock though the server's clock jumps": "a row expires by the server's clock",
	}
}

// S3 returns what a store of objects cannot keep.
func S3() map[string]string {
	return map[string]string{
		"a hold lasts though the server loses its data":                       "the lock is an object, and is lost with the store's data",
		"a random history is that of one lock though servers lose their data": "the lock is an object, and is lost with the store's data",
	}
}
