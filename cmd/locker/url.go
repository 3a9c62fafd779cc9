package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	_ "github.com/go-locker/locker/all"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/target"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/backends"
	_ "github.com/go-locker/locker/kubernetes"
	_ "github.com/go-locker/locker/s3"
	_ "github.com/go-locker/locker/sql/mysql"
	_ "github.com/go-locker/locker/sql/postgres"
	_ "github.com/go-locker/locker/sql/sqlite"
)

var urlHelp = "The backend is a URL:\n" + urlForms() + `
"-" stands for the value of the environment variable LOCKER_URL. Put a URL with
a password there: other users of the machine see the command line of a process,
but not its environment. Every URL takes ttl=10s, prefix=app, renew=false,
token_base=1000 and require=fencing,failover.`

// urlForms lists the URLs of all backends, mem:// last.
func urlForms() string {
	var lines strings.Builder
	for _, b := range slices.Concat(backends.All[1:], backends.All[:1]) {
		for form := range slices.Chunk(b.Help, 2) {
			fmt.Fprintf(&lines, "  %-38s %s\n", form[0], form[1])
		}
	}
	return lines.String()
}

// checkName refuses names that no backend takes, before any request.
func checkName(name string) error {
	if name == "" {
		return outcome.Usagef("the name of the lock is empty")
	}
	return checkText("the name of the lock", name, "URL NAME")
}

// checkText refuses text that cannot be part of a name.
func checkText(what, text, want string) error {
	switch {
	case !utf8.ValidString(text):
		return outcome.Usagef("%s is not UTF-8", what)
	case isURL(text): // its password would be in a key, and in every error
		return outcome.Usagef("%s is a URL of a backend: want %s", what, want)
	default:
		return nil
	}
}

// isURL reports whether s begins with a scheme of [locker.Open].
func isURL(s string) bool {
	scheme, _, ok := strings.Cut(strings.ToLower(s), "://")
	return ok && slices.Contains(driver.Schemes(), scheme)
}

// schemes completes the URL, which is the first argument.
func schemes(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all := []cobra.Completion{cobra.CompletionWithDesc("-", "the URL in "+target.Env)}
	for _, scheme := range driver.Schemes() {
		all = append(all, scheme+"://")
	}
	return all, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// schemesAlone completes the URLs that all arguments are.
func schemesAlone(c *cobra.Command, _ []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return schemes(c, nil, part)
}

// schemesThenCommand completes the URL, and after --: a program, then files.
func schemesThenCommand(c *cobra.Command, args []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch {
	case len(args) < 2:
		return schemes(c, args, part)
	case len(args) > 2 || strings.ContainsRune(part, filepath.Separator):
		return nil, cobra.ShellCompDirectiveDefault // files
	}
	var programs []cobra.Completion
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			if _, err := exec.LookPath(filepath.Join(dir, f.Name())); err == nil && strings.HasPrefix(f.Name(), part) {
				programs = append(programs, f.Name())
			}
		}
	}
	slices.Sort(programs)
	return slices.Compact(programs), cobra.ShellCompDirectiveDefault
}
