package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
)

// api makes requests for the Leases of a namespace, by the HTTP client of a REST client. That one
// has what it takes to be let in. Its own requests would hide the API server's time, stand in a
// queue behind those of the application, and be made again by themselves.
type api struct {
	http      *http.Client
	leases    *url.URL
	namespace string
}

// lease reads the Lease called name (GET), makes it (POST), or updates it (PUT).
func (a *api) lease(ctx context.Context, method, name string, sent *coordinationv1.Lease) (object, error) {
	path, query := "/"+name, url.Values{}
	if method == http.MethodPost {
		path = ""
	}
	var body any
	if sent != nil {
		body = sent
		query.Set("fieldManager", manager)
	}
	var l coordinationv1.Lease
	date, err := a.do(ctx, method, path, query, body, &l)
	switch {
	case err != nil:
		return object{}, err
	case l.Name != name:
		return object{}, fmt.Errorf("%s of the Lease %s: the answer is for the Lease %q: is there a proxy before the API server?", method, name, l.Name)
	case sent != nil:
		err = compare(sent, &l)
	}
	if err != nil {
		return object{}, err
	}
	return parse(&l, date)
}

// remove deletes the Lease if it is what it was.
func (a *api) remove(ctx context.Context, l *coordinationv1.Lease) error {
	body := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}}
	_, err := a.do(ctx, http.MethodDelete, "/"+l.Name, nil, body, nil)
	return err
}

const pageSize = "500"

// list returns some Leases of this package, and from where to go on, "" at the end.
func (a *api) list(ctx context.Context, from string) (some []object, next string, err error) {
	query := url.Values{"labelSelector": {managerLabel + "=" + manager}, "limit": {pageSize}}
	if from != "" {
		query.Set("continue", from)
	}
	var page coordinationv1.LeaseList
	date, err := a.do(ctx, http.MethodGet, "", query, nil, &page)
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsResourceExpired(err) && status.ErrStatus.Continue != "" {
		return a.list(ctx, status.ErrStatus.Continue) // what follows as it is now
	}
	for i := range page.Items {
		o, bad := parse(&page.Items[i], date)
		if bad != nil {
			return nil, "", bad
		}
		some = append(some, o)
	}
	return some, page.Continue, err
}

// do makes a request, and reads its reply into result. Any status but 2xx is an error; that of an API
// server is a StatusError. If the server has asked for a pause, do returns when it is over, or ctx.
func (a *api) do(ctx context.Context, method, path string, query url.Values, body, result any) (date time.Time, err error) {
	resp, err := a.send(ctx, method, path, query, body)
	if err != nil {
		return date, err
	}
	stop := context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	defer stop()
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return date, err
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		if pause, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil {
			_ = clock.Sleep(ctx, time.Duration(pause)*time.Second)
		}
		err := failure(resp, answer)
		if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError {
			err = &noanswer.Later{Err: err} // it starts, is busy, or has no store
		}
		return date, err
	}
	date, _ = http.ParseTime(resp.Header.Get("Date"))
	if result == nil {
		return date, nil
	}
	return date, json.Unmarshal(answer, result)
}

// send returns the answer, whose body is still to be read.
func (a *api) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	u := *a.leases
	u.Path += path
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	// A credential plugin, or another transport of the application, may ignore ctx.
	type reply struct {
		*http.Response
		err error
	}
	replies := make(chan reply)
	go func() {
		resp, err := a.http.Do(req) //nolint:bodyclose // by who receives it
		select {
		case replies <- reply{resp, err}:
		case <-ctx.Done():
			if err == nil {
				_ = resp.Body.Close()
			}
		}
	}()
	select {
	case r := <-replies:
		return r.Response, r.err
	case <-ctx.Done():
		return nil, &url.Error{Op: method, URL: u.String(), Err: ctx.Err()}
	}
}

// failure makes an error of an answer. An API server's is a Status, except 429, which is text. The
// 404 and 409 of a proxy tell nothing of a Lease.
func failure(resp *http.Response, answer []byte) error {
	var status metav1.Status
	if json.Unmarshal(answer, &status) == nil && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		return apierrors.NewTooManyRequestsError(string(answer))
	}
	if to, err := resp.Location(); err == nil { // its path and query may have secrets
		return fmt.Errorf("%s %s: %s to %s://%s: locker follows no redirect: use the address of the API server itself",
			resp.Request.Method, resp.Request.URL.Path, resp.Status, to.Scheme, to.Host)
	}
	return fmt.Errorf("%s %s: %s: %q", resp.Request.Method, resp.Request.URL.Path, resp.Status, answer[:min(len(answer), 200)])
}

// didNothing reports whether a request that failed has changed nothing for certain. If the network
// repeats a request, the reply may be that to its second copy: 404, 409 and 429 tell nothing of the
// first.
func didNothing(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Code >= http.StatusBadRequest && status.ErrStatus.Code < http.StatusInternalServerError &&
		!changed(err) && !apierrors.IsTooManyRequests(err)
}

// changed reports whether a request was refused because the Lease was not what it expected.
func changed(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }
