package main

import (
	"time"

	"github.com/go-locker/locker/bench/internal/self"
	"github.com/go-locker/locker/bench/internal/stats"
	"github.com/go-locker/locker/bench/internal/wire"
)

// Load is what went on between two looks.
type Load struct {
	Seconds  float64          `json:"seconds"`
	Requests int64            `json:"requests"` // but for what keeps sessions alive
	ByName   map[string]int64 `json:"requestsByName"`
	Traffic  wire.Traffic     `json:"traffic"`
	Client   self.Use         `json:"client"` // of this process
}

// keepAlive is what etcd's clients send every so often, as ZooKeeper's send pings.
const keepAlive = "stream leasekeepalive"

// look is what has gone on so far.
type look struct {
	at      time.Time
	sent    map[string]int64
	traffic wire.Traffic
	client  self.Use
}

func lookAt(sent *wire.Tally) look {
	return look{sent: sent.Snapshot(), traffic: sent.Traffic(), client: self.Now(), at: time.Now()}
}

func (l look) since(before look) Load {
	load := Load{
		Seconds: l.at.Sub(before.at).Seconds(), ByName: make(map[string]int64),
		Traffic: l.traffic.Sub(before.traffic), Client: l.client.Sub(before.client),
	}
	for name, n := range l.sent {
		if n -= before.sent[name]; n > 0 {
			load.ByName[name] = n
			if name != keepAlive {
				load.Requests += n
			}
		}
	}
	return load
}

// add is what went on in both.
func (l Load) add(other Load) Load {
	sum := Load{
		Seconds: l.Seconds + other.Seconds, Requests: l.Requests + other.Requests, ByName: make(map[string]int64),
		Traffic: l.Traffic.Add(other.Traffic), Client: l.Client.Add(other.Client),
	}
	for _, one := range []Load{l, other} {
		for name, n := range one.ByName {
			sum.ByName[name] += n
		}
	}
	return sum
}

func (l *Load) requests() float64    { return float64(l.Requests) }
func (l *Load) roundTrips() float64  { return float64(l.Traffic.RoundTrips) }
func (l *Load) bytes() float64       { return float64(l.Traffic.BytesSent + l.Traffic.BytesReceived) }
func (l *Load) allocations() float64 { return float64(l.Client.Allocations) }
func (l *Load) kilobytes() float64   { return float64(l.Client.Bytes) / 1000 }
func (l *Load) goroutines() float64  { return float64(l.Client.Goroutines) }
func (l *Load) clientUs() float64    { return stats.Microseconds(l.Client.Processor) }
