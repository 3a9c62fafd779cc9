package kubernetes

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// watch has the API server tell of each change to one Lease, as long as somebody waits for it.
type watch struct {
	live bool // the API server has begun to tell; guarded by views.mu
	stop context.CancelFunc
}

// A watch that has failed begins again after a pause, which grows.
const (
	leastPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
	lookLimit  = 5 * time.Second // for the look with which it begins again
)

// watchLimit is how many seconds a watch lasts. One that tells nothing because its connection is dead
// lasts no longer.
const watchLimit = 120

// startWatch tells of what follows version. The caller holds views.mu.
func (d *Driver) startWatch(name, version string) *watch {
	ctx, stop := context.WithCancel(d.ctx)
	w := &watch{stop: stop}
	d.running.Go(func() {
		defer stop()
		for pause := leastPause; ; pause = min(2*pause, mostPause) {
			if version != "" && d.watchFrom(ctx, w, name, version) {
				pause = leastPause
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause/2 + rand.N(pause)):
			}
			version = d.lookFor(ctx, name)
		}
	})
	return w
}

// lookFor returns the version from which on to watch, or "".
func (d *Driver) lookFor(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	s, err := d.read(ctx, name)
	if err != nil {
		return ""
	}
	return s.lease.ResourceVersion
}

// watchFrom makes one request, and tells until that ends. It reports whether it was answered.
func (d *Driver) watchFrom(ctx context.Context, w *watch, name, version string) (answered bool) {
	ctx, cancel := context.WithTimeout(ctx, (watchLimit+5)*time.Second)
	defer cancel()
	resp, err := d.api.send(ctx, http.MethodGet, "", url.Values{
		"watch": {"true"}, "resourceVersion": {version}, "timeoutSeconds": {strconv.Itoa(watchLimit)}, "fieldSelector": {"metadata.name=" + objectName(name)},
	}, nil)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return false
	}
	d.views.watched(w, true)
	defer d.views.watched(w, false)
	for events := json.NewDecoder(resp.Body); ; {
		var event struct {
			Type   apiwatch.EventType
			Object coordinationv1.Lease
		}
		if events.Decode(&event) != nil || event.Type != apiwatch.Added && event.Type != apiwatch.Modified {
			return true // it has ended, the Lease was deleted, or the version is too old: a look tells
		}
		o, err := parse(&event.Object)
		if err != nil {
			return true
		}
		d.views.observe(name, reply{object: o}, time.Time{})
	}
}

// watched notes that a watch has begun or ended.
func (vs *views) watched(w *watch, live bool) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	w.live = live
}
