//go:build !unix

package self

import "time"

// ProcessorTime is not known here.
func ProcessorTime() time.Duration { return 0 }
