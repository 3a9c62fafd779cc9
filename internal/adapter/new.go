// Package adapter has what adapters share: how they make Drivers and Clients, and how they read
// URLs. A function that reads a parameter of a URL takes it off the query.
package adapter

import (
	"errors"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// Refuse is the error of a NewDriver, for that reason.
func Refuse(why error) error { return &driver.Error{Op: "new", Err: why} }

// Apply has opts change to. A nil option, and one that is not valid, are refused.
func Apply[To any, Option ~func(To) error](to To, opts []Option) error {
	for _, opt := range opts {
		if opt == nil {
			return Refuse(errors.New("nil DriverOption"))
		}
		if err := opt(to); err != nil {
			return Refuse(err)
		}
	}
	return nil
}

// Client is the one over a Driver that an adapter's New has made, and nobody else has. If an option
// is refused there is none, and d is closed.
func Client(d driver.Driver, opts ...locker.Option) (*locker.Client, error) {
	c, err := locker.New(d, opts...)
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return c, nil
}
