package testserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SetCreated restarts the server, which then believes that n children of parent have been made: the next that is sequential gets
// the number n. No client can make so many. The transaction that says so, the making of a child, and one that deletes the child are
// appended to the server's log.
func (s *ZooKeeperServer) SetCreated(parent string, n int32) {
	s.t.Helper()
	s.kill()
	if err := s.setCreated(parent, n); err != nil {
		s.t.Fatalf("testserver: %s: %v", s.name, err)
	}
	s.Restart()
}

func (s *ZooKeeperServer) setCreated(parent string, n int32) error {
	path, err := s.lastLog()
	if err != nil {
		return err
	}
	log, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	end, last, err := readTransactions(log)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	child := parent + "/created"
	var made []byte
	made = appendJute(made, child)
	made = appendJute(made, "")                   // its data
	made = binary.BigEndian.AppendUint32(made, 1) // of its ACL's entries
	made = binary.BigEndian.AppendUint32(made, 31)
	made = appendJute(appendJute(made, "world"), "anyone")
	made = append(made, 0) // not ephemeral
	made = binary.BigEndian.AppendUint32(made, uint32(n))
	const create, remove = 1, 2
	more := appendTransaction(nil, last+1, create, made)
	more = appendTransaction(more, last+2, remove, appendJute(nil, child))
	if rest := log[end:]; len(rest) < len(more) {
		log = append(log, make([]byte, len(more)-len(rest))...)
	}
	copy(log[end:], more)
	return os.WriteFile(path, log, 0o600)
}

// lastLog is the path of the log that the server wrote last. Its name has the number of its first transaction.
func (s *ZooKeeperServer) lastLog() (string, error) {
	logs, err := filepath.Glob(filepath.Join(s.dataDir(), "version-2", "log.*"))
	if err != nil || len(logs) == 0 {
		return "", errors.Join(errors.New("it has written nothing yet"), err)
	}
	number := func(log string) uint64 {
		n, _ := strconv.ParseUint(strings.TrimPrefix(filepath.Ext(log), "."), 16, 64)
		return n
	}
	return slices.MaxFunc(logs, func(a, b string) int { return int(number(a)) - int(number(b)) }), nil
}

// A log is a header of 16 bytes, transactions, and zeros. A transaction is a checksum of eight bytes, its length in four, a
// header, what it does, and a mark (FileTxnLog).
const (
	logHeader   = 16
	beforeBytes = 8 + 4
	endMark     = 'B'
)

// readTransactions returns where a log's transactions end, and the number of the last.
func readTransactions(log []byte) (end int, last uint64, err error) {
	if !bytes.HasPrefix(log, []byte("ZKLG")) {
		return 0, 0, errors.New("this is no log of transactions")
	}
	const zxid = 8 + 4 // behind the client's number and that of its request
	for end = logHeader; end+beforeBytes <= len(log); {
		length := int(binary.BigEndian.Uint32(log[end+8:]))
		if length == 0 {
			break
		}
		next := end + beforeBytes + length + 1
		if next > len(log) || log[next-1] != endMark {
			break // it was being written
		}
		last = binary.BigEndian.Uint64(log[end+beforeBytes+zxid:])
		end = next
	}
	if last == 0 {
		return 0, 0, errors.New("it has no transactions")
	}
	return end, last, nil
}

func appendTransaction(log []byte, zxid uint64, kind uint32, what []byte) []byte {
	transaction := make([]byte, 8+4, 64+len(what)) // nobody's request
	transaction = binary.BigEndian.AppendUint64(transaction, zxid)
	transaction = binary.BigEndian.AppendUint64(transaction, uint64(time.Now().UnixMilli()))
	transaction = binary.BigEndian.AppendUint32(transaction, kind)
	transaction = append(transaction, what...)
	log = binary.BigEndian.AppendUint64(log, uint64(adler32.Checksum(transaction)))
	log = appendJute(log, string(transaction))
	return append(log, endMark)
}

// appendJute appends a string as ZooKeeper writes them.
func appendJute(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}
