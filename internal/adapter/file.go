package adapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// mostBytes is what a file that a URL names may have: a bundle of all public authorities has a
// quarter of it.
const mostBytes = 1 << 20

// readFile returns what is in the file that a parameter names. It has to be a regular file, for a
// pipe or a device may never end. On a file system that does not answer it returns when ctx ends.
// No error shows what is in the file.
func readFile(ctx context.Context, parameter, name string) ([]byte, error) {
	content, err := within(ctx, func() ([]byte, error) { return readRegular(name) })
	if err != nil {
		return nil, fmt.Errorf("parameter %s: %w", parameter, err)
	}
	return content, nil
}

// within returns when read does or ctx ends.
func within(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var (
		content []byte
		err     error
	)
	done := make(chan struct{})
	go func() {
		defer close(done)
		content, err = read()
	}()
	select {
	case <-done:
		return content, err
	case <-ctx.Done():
		return nil, fmt.Errorf("the file is not read yet: %w", ctx.Err())
	}
}

// readRegular looks before it opens, because to open a device may do something, and after, because
// the file may be another by then.
func readRegular(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if err := regular(info, name); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	content, err := readOpen(f)
	return content, errors.Join(err, f.Close())
}

func readOpen(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := regular(info, f.Name()); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err == nil && len(content) > mostBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", f.Name(), mostBytes)
	}
	return content, err
}

func regular(info os.FileInfo, name string) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", name)
	}
	return nil
}
