package filefence_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/filefence"
)

func ExampleWrite() {
	dir, _ := os.MkdirTemp("", "filefence")
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "config.json")
	ctx := context.Background()

	// The tokens are those of a lock's holders: m.FencingToken().
	fmt.Println(filefence.Write(ctx, name, 34, []byte(`{"by":"the newest holder"}`), 0o644))
	err := filefence.Write(ctx, name, 33, []byte(`{"by":"one who was paused"}`), 0o644)
	fmt.Println("refused:", errors.Is(err, fence.ErrStale))

	content, _ := os.ReadFile(name)
	token, _ := os.ReadFile(name + ".fence")
	fmt.Printf("%s %s", content, token)
	// Output:
	// <nil>
	// refused: true
	// {"by":"the newest holder"} 34
}

// What has been seen is still known when the process starts anew.
func ExampleDir() {
	var guard fence.Guard = filefence.Dir("/var/lib/shop/fence")
	err := guard.Write(context.Background(), "orders/42", 34, func(context.Context) error {
		fmt.Println("written")
		return nil
	})
	fmt.Println(err)
}

// Who reads before it writes shows its token first.
func ExampleRead() {
	dir, _ := os.MkdirTemp("", "filefence")
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "visits")
	ctx := context.Background()

	visits, err := filefence.Read(ctx, name, 34, 0o644)
	fmt.Printf("%q %v\n", visits, err)
	fmt.Println(filefence.Write(ctx, name, 34, append(visits, "one "...), 0o644))

	visits, err = filefence.Read(ctx, name, 35, 0o644)
	fmt.Printf("%q %v\n", visits, err)
	err = filefence.Write(ctx, name, 34, []byte("one by one who was paused"), 0o644)
	fmt.Println("refused:", errors.Is(err, fence.ErrStale))
	// Output:
	// "" <nil>
	// <nil>
	// "one " <nil>
	// refused: true
}
