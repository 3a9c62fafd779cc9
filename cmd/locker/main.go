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
	"os"
	"runtime"
	"strings"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/go-locker/locker/cmd/locker/internal/job"
)

// The main goroutine stays on the process's first thread, which ends only with the process: to Linux the end of the thread that
// started a command is our end. See attributes.
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
	ended, isStatus := errors.AsType[*statusError](err)
	if !isStatus || ended.err != nil {
		fmt.Fprintf(os.Stderr, "locker: %s\n", strings.TrimPrefix(err.Error(), "locker: ")) // the library's errors begin with it, too
	}
	if isStatus && ended.interrupted {
		job.DieOfInterrupt()
	}
	return exitCode(err)
}

// columns is how wide a terminal has to be.
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
