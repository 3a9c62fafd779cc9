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
	live bool // the API server tells; guarded by views.mu
	stop context.CancelFunc
}

// A watch that has ended begins again after a pause, which grows while watches end soon.
const (
	leastPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
	lookLimit  = 5 * time.Second // for the look with which it begins again
)

// watchLimit is how many seconds a watch lasts. One that tells nothing because its connection is
// dead lasts no longer.
const watchLimit = 120

// startWatch tells of what follows version. The caller holds views.mu.
func (d *backend) startWatch(name, version string) *watch {
	ctx, stop := context.WithCancel(d.ctx)
	w := &watch{stop: stop}
	d.running.Go(func() {
		defer stop()
		for pause := leastPause; ; pause = min(2*pause, mostPause) {
			began := time.Now()
			if version != "" {
				d.tell(ctx, w, name, version)
			}
			if time.Since(began) > mostPause {
				pause = leastPause
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause/2 + rand.N(pause)):
			}
			look, cancel := context.WithTimeout(ctx, lookLimit)
			version = ""
			if s, err := d.read(look, name); err == nil {
				version = s.lease.ResourceVersion
			}
			cancel()
		}
	})
	return w
}

// tell makes one request, and takes in what it tells until it ends: by itself, because the Lease is
// deleted, or because the version is too old.
func (d *backend) tell(ctx context.Context, w *watch, name, version string) {
	ctx, cancel := context.WithTimeout(ctx, (watchLimit+5)*time.Second)
	defer cancel()
	resp, err := d.api.send(ctx, http.MethodGet, "", url.Values{
		"watch": {"true"}, "resourceVersion": {version}, "timeoutSeconds": {strconv.Itoa(watchLimit)}, "fieldSelector": {"metadata.name=" + objectName(name)},
	}, nil)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	defer stop()
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return
	}
	d.views.tells(w, true)
	defer d.views.tells(w, false)
	for events := json.NewDecoder(resp.Body); ; {
		var event struct {
			Type   apiwatch.EventType
			Object coordinationv1.Lease
		}
		if events.Decode(&event) != nil || event.Object.Name != objectName(name) ||
			event.Type != apiwatch.Added && event.Type != apiwatch.Modified {
			return
		}
		o, err := parse(&event.Object, time.Time{})
		if err != nil {
			return
		}
		d.views.observe(name, o, time.Time{})
	}
}

// tells notes that a watch has begun or ended.
func (vs *views) tells(w *watch, live bool) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	w.live = live
}
