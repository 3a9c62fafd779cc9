// Package self is what this process uses.
package self

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// Use is what this process has used so far, or in between two looks.
type Use struct {
	Processor   time.Duration `json:"processorNs"`
	Allocations uint64        `json:"allocations"`
	Bytes       uint64        `json:"bytes"` // allocated
	Goroutines  uint64        `json:"goroutines"`
}

// Now stops the world for a moment.
func Now() Use {
	started := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(started)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return Use{
		Processor: ProcessorTime(), Allocations: mem.Mallocs, Bytes: mem.TotalAlloc,
		Goroutines: started[0].Value.Uint64(),
	}
}

// Sub is what was used since before.
func (u Use) Sub(before Use) Use {
	return Use{
		Processor: u.Processor - before.Processor, Allocations: u.Allocations - before.Allocations,
		Bytes: u.Bytes - before.Bytes, Goroutines: u.Goroutines - before.Goroutines,
	}
}

// Add is what was used in both.
func (u Use) Add(other Use) Use {
	return Use{
		Processor: u.Processor + other.Processor, Allocations: u.Allocations + other.Allocations,
		Bytes: u.Bytes + other.Bytes, Goroutines: u.Goroutines + other.Goroutines,
	}
}
