package tusd_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"
	"golang.org/x/exp/slog"

	"github.com/go-locker/locker"
	lockertusd "github.com/go-locker/locker/integrations/tusd"
	_ "github.com/go-locker/locker/memory"
)

// Each of several servers over one folder does this.
func Example() {
	client, err := locker.Open(context.Background(), "mem://uploads") // or "redis://localhost:6379"
	if err != nil {
		panic(err)
	}
	defer client.Close()
	dir, err := os.MkdirTemp("", "uploads") // a folder that all servers see
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	composer := handler.NewStoreComposer()
	filestore.New(dir).UseIn(composer)
	composer.UseLocker(lockertusd.New(client))
	uploads, err := handler.NewHandler(handler.Config{
		BasePath: "/files/", StoreComposer: composer,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		panic(err)
	}

	create := httptest.NewRequest(http.MethodPost, "/files/", nil) // from a client
	create.Header.Set("Tus-Resumable", "1.0.0")
	create.Header.Set("Upload-Length", "5")
	response := httptest.NewRecorder()
	http.StripPrefix("/files/", uploads).ServeHTTP(response, create)
	fmt.Println(response.Code)
	// Output: 201
}
