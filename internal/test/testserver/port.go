package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports lie below the ephemeral range of every system we know, so that no outgoing connection of
// anybody sits on one, and below 20000, so that the Redis Cluster bus at port + 10000 stays there
// too. The default ports of Redis, etcd and ZooKeeper are all below firstPort.
const (
	firstPort = 10000
	lastPort  = 19999
)

// reservePort returns a TCP port of the loopback interface that is free and stays reserved among
// all test processes of this machine until the test ends, also while the server that uses it is
// down between a Kill and a Restart.
//
// The reservation is a UDP socket on the same number: UDP and TCP do not get in each other's way,
// only one process can have it, and the kernel gives it back when that process dies, however it
// dies. Processes that know nothing of this are seen by the TCP probe; what slips between probe and
// start ends in errPortTaken.
func reservePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		reservation, err := net.ListenPacket("udp4", loopback(port))
		if err != nil {
			continue
		}
		probe, err := net.Listen("tcp4", loopback(port))
		if err != nil {
			_ = reservation.Close()
			continue
		}
		_ = probe.Close()
		t.Cleanup(func() { _ = reservation.Close() })
		return port
	}
	t.Fatalf("testserver: found no free port between %d and %d on 127.0.0.1", firstPort, lastPort)
	return 0
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// withPort is withPorts for a server on its own.
func withPort(t testing.TB, what string, start func(port int) error) {
	t.Helper()
	withPorts(t, what, 1, func(ports []int) error { return start(ports[0]) })
}

// withPorts calls start with n reserved ports until none of them is taken, and fails the test with
// start's error otherwise.
func withPorts(t testing.TB, what string, n int, start func(ports []int) error) {
	t.Helper()
	const attempts = 10
	var err error
	for range attempts {
		ports := make([]int, n)
		for i := range ports {
			ports[i] = reservePort(t)
		}
		if err = start(ports); !isPortTaken(err) {
			break
		}
	}
	if err != nil {
		t.Fatalf("testserver: %s: %v", what, fmt.Errorf("could not start: %w", err))
	}
}
