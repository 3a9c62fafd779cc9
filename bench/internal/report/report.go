// Package report writes down what was measured.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Setting is where and of what a run was.
type Setting struct {
	At         time.Time    `json:"at"`
	Go         string       `json:"go"`
	OS         string       `json:"os"`
	Processors int          `json:"processors"`
	Server     string       `json:"server"` // with its version
	Libraries  []LibraryRow `json:"libraries"`
}

// LibraryRow says which version of a library was measured, and how it was set up.
type LibraryRow struct {
	Name     string `json:"name"`
	Module   string `json:"module"`
	Version  string `json:"version"`
	Settings string `json:"settings"`
}

// NewSetting is that of this process, now, with the server's name and version. It fills in the versions of
// the libraries.
func NewSetting(server string, libraries []LibraryRow) Setting {
	versions := moduleVersions()
	for i := range libraries {
		if v, ok := versions[libraries[i].Module]; ok {
			libraries[i].Version = v
		}
	}
	return Setting{
		At: time.Now().UTC(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH,
		Processors: runtime.GOMAXPROCS(0), Server: server, Libraries: libraries,
	}
}

func moduleVersions() map[string]string {
	versions := make(map[string]string)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, m := range info.Deps {
		versions[m.Path] = m.Version
		if m.Replace != nil {
			versions[m.Path] = "this tree"
		}
	}
	return versions
}

// Print is the head of a report.
func (s *Setting) Print(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %s, %s, %d processors.\n\n", s.Server, s.Go, s.OS, s.Processors)
	libs := NewTable("library", "version", "settings")
	for _, l := range s.Libraries {
		libs.AppendRow(table.Row{l.Name, l.Version, l.Settings})
	}
	fmt.Fprintf(b, "%s\n", libs.RenderMarkdown())
}

// WriteJSON writes the raw figures to a file.
func WriteJSON(file string, results any) error {
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// NewTable aligns figures to the right and words to the left.
func NewTable(columns ...string) table.Writer {
	t := table.NewWriter()
	header := make(table.Row, len(columns))
	configs := make([]table.ColumnConfig, len(columns))
	for i, c := range columns {
		align := text.AlignRight
		switch c {
		case "library", "version", "settings":
			align = text.AlignLeft
		}
		header[i] = c
		configs[i] = table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align}
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(configs)
	t.Style().Format.Header = text.FormatDefault
	return t
}
