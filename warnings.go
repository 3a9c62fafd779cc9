package locker

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-locker/locker/driver"
)

// Warnings returns a sentence for each setting of the backend's servers that lets a promise be broken, such as one that has Redis
// evict the keys of held locks. None means that nothing of the kind is known: a server may not tell, or not this user, and not every
// Driver asks. If the backend is unreachable, it returns the client's error.
//
// A Client with a logger asks by itself, once, after its first grant. Nothing waits for that.
func (c *Client) Warnings(ctx context.Context) ([]string, error) {
	w, ok := c.driver.(driver.Warner)
	if !ok {
		return nil, nil
	}
	warnings, err := ask(ctx, c, warningsTimeout, w.Warnings)
	return warnings, wrap("warnings", "", err)
}

const warningsTimeout = 5 * time.Second

// logWarnings has the logger told of Warnings, the first time that it is called. It does not wait. Its caller is one that Close
// waits for.
func (c *Client) logWarnings() {
	if c.config.logger == nil || c.warned.Swap(true) {
		return
	}
	c.spawn(func() {
		warnings, _ := c.Warnings(context.Background())
		for _, w := range warnings {
			c.log(slog.LevelWarn, "backend may break a promise", slog.String("why", w))
		}
	})
}
