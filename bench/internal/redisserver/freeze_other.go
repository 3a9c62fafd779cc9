//go:build !unix

package redisserver

import (
	"context"
	"errors"
	"fmt"
)

var errNoSignals = fmt.Errorf("stopping a process: %w", errors.ErrUnsupported)

// Freeze needs signals that are not to be had here.
func (s *Server) Freeze(context.Context) error { return errNoSignals }

// Thaw needs signals that are not to be had here.
func (s *Server) Thaw(context.Context) error { return errNoSignals }
