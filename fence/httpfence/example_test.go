package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/httpfence"
	_ "github.com/go-locker/locker/memory"
)

// A server of orders, and a client that writes one while it holds the lock of it.
func Example() {
	var guard fence.Memory
	mux := http.NewServeMux()
	mux.Handle("PUT /orders/{id}", httpfence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("order %s is now: %s\n", r.PathValue("id"), body)
	}), &guard, nil))
	server := httptest.NewServer(mux)
	defer server.Close()

	ctx := context.Background()
	locks, _ := locker.Open(ctx, "mem://example-httpfence")
	defer locks.Close()
	m := locks.Mutex("orders/42")
	client := &http.Client{Transport: httpfence.NewTransport(server.Client().Transport, m.FencingToken)}
	put := func(ctx context.Context, content string) error {
		req, _ := http.NewRequestWithContext(ctx, "PUT", server.URL+"/orders/42", strings.NewReader(content))
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return httpfence.Check(resp)
	}

	fmt.Println("without the lock:", errors.Is(put(ctx, "not sent"), fence.ErrStale))

	paused, _ := m.Acquire(ctx)
	_ = paused.Unlock(ctx) // stands for the TTL, which passes while the holder sleeps
	fmt.Println(m.Do(ctx, func(ctx context.Context) error { return put(ctx, "paid") }))

	ctx = httpfence.WithToken(ctx, paused.Token()) // work that was begun under the hold that is over
	fmt.Println("late:", errors.Is(put(ctx, "cancelled"), fence.ErrStale))
	// Output:
	// without the lock: true
	// order 42 is now: paid
	// <nil>
	// late: true
}

func ExampleHandler() {
	var guard fence.Memory
	h := httpfence.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "written")
	}), &guard, nil)
	for _, token := range []string{"34", "33"} {
		r := httptest.NewRequest(http.MethodPut, "/orders/42", strings.NewReader("paid"))
		r.Header.Set(httpfence.Header, token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 written
	// 412 {"type":"https://github.com/go-locker/locker/tree/main/fence/httpfence#stale-token","title":"The fencing token is stale","status":412,"detail":"the token is 33, and the holder of 34 has written","token":"33","newest":"34"}
}

// A server that compares entity tags, and knows nothing of locks.
func ExampleIfMatch() {
	server := httptest.NewServer(newStore())
	defer server.Close()
	put := func(content string, after *http.Response) (*http.Response, error) {
		req, _ := http.NewRequestWithContext(context.Background(), "PUT", server.URL+"/orders/42", strings.NewReader(content))
		if after != nil {
			if err := httpfence.IfMatch(req, after); err != nil {
				return nil, err
			}
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		return resp, httpfence.Check(resp)
	}

	mark33, _ := fence.Mark("orders/42", 33)
	paused, _ := put(mark33, nil)
	mark34, _ := fence.Mark("orders/42", 34)
	marked, _ := put(mark34, nil)
	_, err := put("paid", marked)
	fmt.Println(err)
	_, err = put("cancelled", paused)
	fmt.Println(err)
	// Output:
	// <nil>
	// httpfence: "/orders/42": the resource no longer bears the mark
}
