// Package servertest runs programs that measure, for their tests.
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
)

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
