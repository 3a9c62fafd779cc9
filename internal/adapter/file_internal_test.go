package adapter

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file system whose server is unreachable answers nothing.
func TestWithin_returnsWhenItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	reading, answer := make(chan struct{}), make(chan struct{})
	defer close(answer)
	go func() {
		<-reading
		cancel()
	}()
	_, err := within(ctx, func() ([]byte, error) {
		close(reading)
		<-answer
		return nil, nil
	})
	require.ErrorIs(t, err, context.Canceled)
}

// By the time it is opened, a file may have become something else.
func TestReadOpen_refusesWhatIsNoFile(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = r.Close(), w.Close() }()
	_, err = readOpen(r)
	require.ErrorContains(t, err, "not a regular file")
}
