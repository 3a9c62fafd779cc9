package orders

import (
	"context"

	"github.com/go-locker/locker"
)

func Ship(ctx context.Context, m *locker.Mutex, send func(context.Context) error) error {
	return m.Do(ctx, func(context.Context) error { return send(ctx) })
}
