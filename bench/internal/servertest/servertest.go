// Package servertest is for tests that need servers.
package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-locker/locker/bench/internal/redisserver"
)

// Need skips the test where one of the programs is missing, unless a run without it proves nothing.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := redisserver.Find(program); err != nil {
			unavailable(t, err)
		}
	}
}

func unavailable(t testing.TB, err error) {
	t.Helper()
	for _, required := range []string{"LOCKER_REQUIRE_SERVERS", "CI"} {
		if os.Getenv(required) != "" {
			t.Fatalf("%v (required because %s is set)", err, required)
		}
	}
	t.Skip(err)
}

// Run runs a program that measures, for at most two minutes. It returns the raw figures, which are a Results, what was
// printed, and the names of the charts.
func Run[Results any](
	t *testing.T, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error, args ...string,
) (raw Results, printed string, charts []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	file := filepath.Join(dir, "raw.json")
	var out bytes.Buffer
	must(t, run(ctx, slices.Concat(args, []string{"-json", file, "-charts", dir}), &out, t.Output()))
	written, err := os.ReadFile(file)
	must(t, err)
	must(t, json.Unmarshal(written, &raw))
	charts, err = filepath.Glob(filepath.Join(dir, "*.svg"))
	must(t, err)
	for i := range charts {
		charts[i] = filepath.Base(charts[i])
	}
	return raw, out.String(), charts
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
