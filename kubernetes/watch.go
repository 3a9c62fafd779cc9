package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// watch has the API server tell of each change to one Lease, as long as somebody waits for it.
type watch struct {
	live    bool // the API server has begun to tell; guarded by views.mu
	stop    context.CancelFunc
	restart context.CancelFunc // of the request that is under way; guarded by views.mu
}

// A watch that has failed begins again after a pause, which grows.
const (
	leastPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
	lookLimit  = 5 * time.Second // for the look with which it begins again
)

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
	sent := time.Now()
	r, err := d.api.get(ctx, objectName(name))
	switch {
	case apierrors.IsNotFound(err):
		d.views.removed(name)
		return ""
	case err != nil:
		return ""
	}
	d.views.observe(name, r, sent)
	return r.lease.ResourceVersion
}

// watchFrom makes one request, and tells until that ends. It reports whether it was answered.
func (d *Driver) watchFrom(ctx context.Context, w *watch, name, version string) (answered bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := d.api.send(ctx, http.MethodGet, "", url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version}, "fieldSelector": {"metadata.name=" + objectName(name)},
	}, nil)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return false
	}
	d.views.watched(w, true, cancel)
	defer d.views.watched(w, false, nil)
	for events := json.NewDecoder(resp.Body); ; {
		var event struct {
			Type   apiwatch.EventType
			Object json.RawMessage
		}
		if err := events.Decode(&event); err != nil {
			return true
		}
		if err := d.told(name, event.Type, event.Object); err != nil {
			return true
		}
	}
}

// told takes in an event. An error ends the watch: it begins again with a look.
func (d *Driver) told(name string, what apiwatch.EventType, raw json.RawMessage) error {
	var l coordinationv1.Lease
	switch what {
	case apiwatch.Added, apiwatch.Modified:
		if err := json.Unmarshal(raw, &l); err != nil {
			return err
		}
		o, err := parse(&l)
		if err != nil {
			return err
		}
		d.views.observe(name, reply{object: o}, time.Time{})
		return nil
	case apiwatch.Bookmark:
		return nil
	default: // deleted, or the version is too old
		return errors.New("the watch begins again")
	}
}

// watched notes that a watch has begun or ended.
func (vs *views) watched(w *watch, live bool, restart context.CancelFunc) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	w.live, w.restart = live, restart
}

// suspect has the watch of a name begin again: it has not told of what a look has found.
func (vs *views) suspect(name string) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v := vs.view(name); v.watch != nil && v.watch.restart != nil {
		v.watch.restart()
	}
}
