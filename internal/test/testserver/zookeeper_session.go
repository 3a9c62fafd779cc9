package testserver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// EndSession ends a session as if its client had closed it, and returns when there is no such session.
func (s *ZooKeeperServer) EndSession(id int64) {
	s.t.Helper()
	await(s.t, fmt.Sprintf("%s has no session %#x", s.name, id), func() error { return s.endSession(id) })
}

// endSession takes the session up on a connection of its own, and closes it there, unless its client is faster and takes it
// back. It returns nil if there is no such session.
func (s *ZooKeeperServer) endSession(id int64) error {
	const timeout = 5 * time.Second
	conn, err := net.DialTimeout("tcp4", s.Addr(), timeout)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	connect := make([]byte, 12)                             // version of the protocol, last transaction seen
	connect = binary.BigEndian.AppendUint32(connect, 10000) // time-out, ms
	connect = binary.BigEndian.AppendUint64(connect, uint64(id))
	password := sessionPassword(id)
	connect = binary.BigEndian.AppendUint32(connect, uint32(len(password)))
	connect = append(connect, password...)
	const closeSession = -11
	closing := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 1}, 1<<32+closeSession) // of request 1
	for _, packet := range [][]byte{connect, closing} {
		length := binary.BigEndian.AppendUint32(nil, uint32(len(packet)))
		if _, err := conn.Write(append(length, packet...)); err != nil {
			return err
		}
	}
	granted := make([]byte, 12) // length of the packet, version of the protocol, time-out
	if _, err := io.ReadFull(conn, granted); err != nil {
		return err
	}
	if binary.BigEndian.Uint32(granted[8:]) == 0 {
		return nil
	}
	_, err = io.Copy(io.Discard, conn) // until the server closes it
	return errors.Join(errors.New("there was one"), err)
}

// sessionPassword is what the servers derive from a session's id alone (ZooKeeperServer.generatePasswd): 16 bytes of
// Java's generator, which is a linear congruential one of 48 bits.
func sessionPassword(id int64) []byte {
	const secret, multiplier, mask = 0xB3415C00, 0x5DEECE66D, 1<<48 - 1
	state := (uint64(id) ^ secret ^ multiplier) & mask
	var password []byte
	for range 4 {
		state = (state*multiplier + 0xB) & mask
		password = binary.LittleEndian.AppendUint32(password, uint32(state>>16))
	}
	return password
}
