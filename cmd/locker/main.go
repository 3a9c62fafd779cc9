// Command locker is a distributed lock for scripts and crontabs, and a test of lock servers.
//
//	locker run redis://localhost:6379 backup -- /usr/local/bin/backup --all
//
// Its commands:
//
//	run      runs a command under a lock
//	inspect  shows who holds a lock, and who waits
//	watch    shows the same, and each change
//	list     lists the locks that are held
//	release  ends the hold of another process
//	check    tests which promises the locks of servers keep
//	bench    measures what the locks of servers cost
//	compare  does check and bench on several servers, and compares them
//
// See README.md, or locker help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-locker/locker/cmd/locker/internal/job"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
)

// Each command is a file here, with its flags, help and output. Packages in internal do the work:
//
//	target   opens the URL                  outcome  the kinds of end; exit.go has their numbers
//	check    runs scenarios, reports        ground   names on servers of others, and their removal
//	run      takes a lock, supervises       job      a command with all that it starts
//	watch    remembers what it sees         server   the server of check --server
//	show     locks and holders as text      secret   keeps the user's input out of errors

// The main goroutine stays on the process's first thread, which ends only with the process: Linux
// takes the end of the thread that started a command for our end. See attributes.
func init() { runtime.LockOSThread() }

func main() {
	logging.Disable() // go-redis logs each failed connection; the error of a call says it once
	os.Exit(execute(context.Background(), os.Args[1:]))
}

// execute runs a command line, and returns the exit code.
func execute(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	ended, isOutcome := errors.AsType[*outcome.Error](err)
	if !isOutcome || ended.Err != nil {
		fmt.Fprintf(os.Stderr, "locker: %s\n", strings.TrimPrefix(err.Error(), "locker: ")) // the library's errors begin with it, too
	}
	if isOutcome && ended.Interrupted {
		job.DieOfInterrupt()
	}
	return exitCode(err)
}

// columns is the width of a terminal, which texts do not exceed but for words that are longer.
const columns = 80

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "locker",
		Short: "A distributed lock for scripts and crontabs, and a test of lock servers",
		Long: `locker runs commands under a distributed lock, shows and lists the locks that
are held, and tests and measures the locks of servers.

` + urlHelp + `

` + exitHelp,
		Version:       version(),
		SilenceErrors: true, // execute prints them
		SilenceUsage:  true, // the error names the flag or argument; --help has the rest
	}
	root.SetFlagErrorFunc(badFlag)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "Flags.FlagUsages |", fmt.Sprintf("Flags.FlagUsagesWrapped %d |", columns)))
	// Without a RunE cobra prints the help for anything, also a misspelt command, and exits with 0.
	root.Args = cobra.ArbitraryArgs
	root.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return unknownCommand(c, args[0])
	}
	root.SuggestionsMinimumDistance = 2
	root.AddCommand(newRun(), newCheck(), newServeLock(), newBench(), newCompare(), newInspect(), newWatch(), newList(), newRelease(), newMan())
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		for _, shell := range c.Commands() { // of completion: cobra's own error would print what was typed
			shell.Args = noArgs
		}
	}
	return root
}

// version returns the module's version, as go install has recorded it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

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
