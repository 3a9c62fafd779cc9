//go:build !js

package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/go-locker/locker/internal/stories"
)

//go:embed page.html
var page string

// main writes the page to the file that it is given, and the recorded stories beside it.
func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./internal/playground FILE")
		os.Exit(2)
	}
	if err := errors.Join(build(os.Args[1]), tell(filepath.Join(filepath.Dir(os.Args[1]), "stories.html"))); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

// tell writes the page of stories. The folder is there.
func tell(file string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(stories.Write(out), out.Close())
}

// build puts Go's glue and the compiled program into the page, so that it needs nothing else.
func build(file string) error {
	dir, err := os.MkdirTemp("", "playground")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	wasm := filepath.Join(dir, "playground.wasm")
	compile := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", wasm, "github.com/go-locker/locker/internal/playground")
	compile.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	program, err := os.ReadFile(wasm)
	if err != nil {
		return err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	glue, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		return err
	}
	var small bytes.Buffer
	z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(program); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	whole := strings.NewReplacer("/*GLUE*/", string(glue), "PROGRAM", base64.StdEncoding.EncodeToString(small.Bytes())).Replace(page)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(whole), 0o644)
}
