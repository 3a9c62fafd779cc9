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
	out, err := exec.Command("go", "vet", "-vettool="+tool, "./testdata/orders").CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") {
			fmt.Print(filepath.ToSlash(line))
		}
	}
	fmt.Println(err)
	// Output:
	// testdata/orders/orders.go:10:61: ctx, which Do was given, does not end when the lock is lost: use the context that Do gives to its function
	// exit status 1
}
