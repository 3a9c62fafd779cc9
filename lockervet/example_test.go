package lockervet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The command, as go vet runs it.
func Example() {
	dir, err := os.MkdirTemp("", "lockervet")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	tool := filepath.Join(dir, "lockervet.exe")
	if out, err := exec.Command("go", "build", "-o", tool, "./cmd/lockervet").CombinedOutput(); err != nil {
		fmt.Println(string(out), err)
		return
	}
	out, err := exec.Command("go", "vet", "-vettool="+tool, "./testdata/goroutine").CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") {
			fmt.Print(filepath.ToSlash(line))
		}
	}
	fmt.Println(err)
	// Output:
	// testdata/goroutine/goroutine.go:14:3: this goroutine uses the lock and may outlive it: Do unlocks when its function returns, which does not wait for the goroutine
	// testdata/goroutine/goroutine.go:22:3: this goroutine uses the lock and may outlive it: Join unlocks when its function returns, which does not wait for the goroutine
	// exit status 1
}
