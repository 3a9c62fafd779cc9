package redlock

import "time"

// ProposerClock has a Driver make the tokens that it proposes of a clock of the test's.
func ProposerClock(now func() time.Time) DriverOption {
	return func(d *backend) error {
		d.clock = now
		return nil
	}
}
