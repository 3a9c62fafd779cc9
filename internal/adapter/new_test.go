package adapter_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// busy is a Driver with a goroutine that Close ends.
type busy struct {
	driver.Driver
	close, closed chan struct{}
}

func newBusy() *busy {
	d := &busy{memory.NewDriver(), make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(d.closed)
		<-d.close
	}()
	return d
}

func (d *busy) Close() error {
	close(d.close)
	<-d.closed
	return d.Driver.Close()
}

func TestClient_closesADriverThatNobodyGets(t *testing.T) {
	for name, refused := range map[string]locker.Option{
		"not valid": locker.Require("world peace"), "not promised": locker.Require(locker.FencingDurable), "nil": nil,
	} {
		t.Run(name, func(t *testing.T) {
			c, err := adapter.Client(newBusy(), refused)
			require.Error(t, err)
			assert.Nil(t, c)
			goleak.VerifyNone(t)
		})
	}
	c, err := adapter.Client(newBusy(), locker.Require(locker.Fencing))
	require.NoError(t, err)
	require.NoError(t, c.Mutex(t.Name()).TryLock(t.Context()), "the Driver is open")
	require.NoError(t, c.Close())
}
