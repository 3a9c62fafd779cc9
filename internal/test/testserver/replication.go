package testserver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Promote makes the server a primary (REPLICAOF NO ONE), with the data that it has received so far.
// Sentinels that were not asked take some ten seconds to object; in a cluster it cannot be done.
func (s *RedisServer) Promote() {
	s.t.Helper()
	s.must("REPLICAOF", "NO", "ONE")
}

// WaitSynced returns when the server, as a replica of primary, has received all that primary had
// written when it was called.
func (s *RedisServer) WaitSynced(primary *RedisServer) {
	s.t.Helper()
	var offset int
	var history string
	await(s.t, fmt.Sprintf("%s is a replica of %s and in step with it", s.Addr(), primary.Addr()), func() error {
		if history == "" {
			theirs, err := primary.replication()
			if err != nil {
				return err
			}
			offset, history = theirs.offset(), theirs["master_replid"]
		}
		ours, err := s.replication()
		switch {
		case err != nil:
			return err
		case ours["master_port"] != strconv.Itoa(primary.port), ours["master_link_status"] != "up":
			return fmt.Errorf("role %s, of port %q, link %q",
				ours["role"], ours["master_port"], ours["master_link_status"])
		case ours["master_replid"] != history:
			// Of another history than at the start: has primary begun a new one since?
			history = ""
			return errors.New("it has other data")
		case ours.offset() < offset:
			return fmt.Errorf("it is at offset %d, not yet at %d", ours.offset(), offset)
		}
		return nil
	})
}

// Detach cuts a replica off from its primary's data for good, or until Reattach: nothing that is
// written after Detach has returned gets here. The server still is a replica and lets itself be
// promoted. Unlike with Stop no data waits in the connection to be read later.
func (s *RedisServer) Detach() {
	s.t.Helper()
	s.must("CONFIG", "SET", "masterauth", "wrong")
	s.must("CLIENT", "KILL", "TYPE", "master")
}

// Reattach undoes Detach. The server tries it within a second: see WaitSynced.
func (s *RedisServer) Reattach() {
	s.t.Helper()
	s.must("CONFIG", "SET", "masterauth", operator)
}

// info has the fields of an INFO or CLUSTER INFO reply.
type info map[string]string

func (s *RedisServer) replication() (info, error) { return s.info("INFO", "replication") }

func (s *RedisServer) info(command ...string) (info, error) {
	text, err := s.doText(command...)
	if err != nil {
		return nil, err
	}
	fields := make(info)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

func (i info) offset() int {
	offset, err := strconv.Atoi(i["master_repl_offset"])
	if err != nil {
		return -1
	}
	return offset
}
