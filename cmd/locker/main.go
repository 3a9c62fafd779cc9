// Command locker is a distributed lock for scripts and crontabs, and a judge of lock servers.
//
//	locker run redis://localhost:6379 backup -- /usr/local/bin/backup --all
//
// It runs commands under a lock (run), shows who holds one and who waits (inspect), and finds out which promises the locks
// of servers keep (check) and what they cost (bench), or both, side by side (compare). See README.md, or locker help.
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
)

// The main goroutine stays on the process's first thread, which ends with the process and not before: Linux takes the
// end of the thread that started a command for the end of us. See start.
func init() { runtime.LockOSThread() }

func main() {
	serve()
	logging.Disable() // go-redis prints each connection that it could not make; the error of a call says it once
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
		fmt.Fprintf(os.Stderr, "locker: %s\n", strings.TrimPrefix(err.Error(), "locker: ")) // the library says so, too
	}
	if isStatus && ended.interrupted {
		dieOfInterrupt()
	}
	return exitCode(err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "locker",
		Short: "A distributed lock for scripts and crontabs, and a judge of lock servers",
		Long: `locker runs commands under a distributed lock, shows who holds one, and finds
out what the locks of a backend are worth.

` + urlHelp + `

` + exitHelp,
		Version:       version(),
		SilenceErrors: true, // execute prints them
		SilenceUsage:  true, // the error names the flag or argument; --help has the rest
	}
	root.SetFlagErrorFunc(badFlag)
	// Without a Run cobra prints the help for anything, a misspelt command too, and calls that a success.
	root.Args = cobra.ArbitraryArgs
	root.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return unknownCommand(c, args[0])
	}
	root.SuggestionsMinimumDistance = 2
	root.AddCommand(newRun(), newCheck(), newBench(), newCompare(), newInspect())
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		for _, shell := range c.Commands() { // of completion: cobra shows what it refuses
			shell.Args = noArgs
		}
	}
	return root
}
