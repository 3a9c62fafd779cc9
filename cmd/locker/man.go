package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const manHelp = `Man prints the manual page of locker, made from the --help of each command. The
archives of a release have the page as locker.1.`

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man",
		Short:   "Print the manual page",
		Long:    manHelp,
		Example: "  locker man | man -l -\n  locker man >/usr/local/share/man/man1/locker.1",
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return writeMan(os.Stdout, c.Root()) },
	}
}

// roff escapes what the formatter would take for its own.
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")

// writeMan writes the page. Texts are wrapped already, and stay as they are.
func writeMan(w io.Writer, root *cobra.Command) error {
	var page strings.Builder
	text := func(s string) { page.WriteString(".nf\n" + strings.TrimPrefix(roff.Replace("\n"+s), "\n") + "\n.fi\n") }
	fmt.Fprintf(&page, ".TH LOCKER 1 \"\" \"locker %s\"\n.SH NAME\nlocker \\- %s\n", roff.Replace(root.Version), roff.Replace(root.Short))
	page.WriteString(".SH SYNOPSIS\n.B locker\n.I command\n[flags]\n.SH DESCRIPTION\n")
	text(root.Long)
	page.WriteString(".SH COMMANDS\n")
	for _, c := range root.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "completion" {
			continue
		}
		fmt.Fprintf(&page, ".SS %s\n", roff.Replace(c.UseLine()))
		text(c.Long)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			fmt.Fprintf(&page, ".TP\n.B %s\n%s\n", roff.Replace(name), roff.Replace(f.Usage))
		})
		if c.Example != "" {
			page.WriteString(".PP\nExamples:\n")
			text(c.Example)
		}
	}
	_, err := io.WriteString(w, page.String())
	return err
}
