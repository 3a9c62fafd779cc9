package wire

import (
	"net"
	"sync/atomic"
)

// Traffic is what went over connections, beside the number of commands.
type Traffic struct {
	// RoundTrips are the times that a command was sent while no answer was due on its connection; so
	// commands that are under way together are one. They say what one goroutine waits for that has the
	// connection to itself.
	RoundTrips int64 `json:"roundTrips"`

	BytesSent     int64 `json:"bytesSent"`
	BytesReceived int64 `json:"bytesReceived"`
}

// Sub is what went over them since before.
func (t Traffic) Sub(before Traffic) Traffic {
	return Traffic{
		RoundTrips: t.RoundTrips - before.RoundTrips,
		BytesSent:  t.BytesSent - before.BytesSent, BytesReceived: t.BytesReceived - before.BytesReceived,
	}
}

// Add is what went over them in both.
func (t Traffic) Add(other Traffic) Traffic {
	return Traffic{
		RoundTrips: t.RoundTrips + other.RoundTrips,
		BytesSent:  t.BytesSent + other.BytesSent, BytesReceived: t.BytesReceived + other.BytesReceived,
	}
}

// traffic is counted by many connections.
type traffic struct{ roundTrips, sent, received atomic.Int64 }

// Traffic returns the counts so far. Of Redis there are none.
func (t *Tally) Traffic() Traffic {
	return Traffic{t.traffic.roundTrips.Load(), t.traffic.sent.Load(), t.traffic.received.Load()}
}

// meteredConn counts bytes.
type meteredConn struct {
	net.Conn
	traffic *traffic
}

func (c *meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.received.Add(int64(n))
	return n, err
}

func (c *meteredConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.sent.Add(int64(n))
	return n, err
}
