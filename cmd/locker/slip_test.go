package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// slips are command lines in which a URL, or another secret, stands where it does not belong, and what is said of each.
func slips(url string) [][2]any {
	type line = []string
	return [][2]any{
		{line{url, "backup", "--", "true"}, "unknown command"},
		{line{"-" + url, "run"}, "unknown flag -r"},
		{line{"--" + url, "run"}, "unknown flag"},
		{line{"--version=" + url}, "--version"},
		{line{"--help=" + url}, "--help"},
		{line{"help", url}, ""},
		{line{"completion", url}, ""},
		{line{"completion", "bash", url}, "takes no arguments"},
		{line{"completion", "bash", "--no-descriptions=" + url}, "--no-descriptions"},

		{line{"run", url, "backup", "true"}, "URL NAME -- COMMAND"},
		{line{"run", "-", url, "backup", "--", "true"}, "URL NAME -- COMMAND"},
		{line{"run", "mem://x", url, "--", "true"}, "the name of the lock is a URL"},
		{line{"run", "mem://x", url + "\xff", "--", "true"}, "UTF-8"},
		{line{"run", "--wait=" + url, "backup", "--", "true"}, "--wait"},
		{line{"run", "--no-wait=" + url, "backup", "--", "true"}, "--no-wait"},
		{line{"run", "-q=" + url, "backup", "--", "true"}, "--quiet"},
		{line{"run", "--held-exit-code", url, "backup", "--", "true"}, "--held-exit-code"},
		{line{"run", "-x" + url, "backup", "--", "true"}, "unknown flag -x"},
		{line{"run", "--password=" + url, "backup", "--", "true"}, "unknown flag --password"},
		{line{"run", "--" + url, "backup", "--", "true"}, "unknown flag"},
		{line{"run", "---" + url, "backup", "--", "true"}, "flag"},
		{line{"run", "mem://x", "backup", "mysqldump", "-pseCret"}, "unknown flag -p"},
		{line{"run", "mem://x", "backup", "--", url, "true"}, "command not found"},
		{line{"run", "mem://x", "backup", "--", "PASSWORD=seCret", "true"}, "command not found"},
		{line{"run", "mem://x", "backup", "--", "/" + url}, "command not found"},
		{line{"run", "mem://x", "backup", "--", "main_test.go/" + url}, "cannot be executed"},

		{line{"check", "mem://x", url}, "want one URL"},
		{line{"check", "--ttl", url, "mem://x"}, "--ttl"},
		{line{"check", "-o" + url, "mem://x"}, "--output"},
		{line{"check", "--run", url + "(", "mem://x"}, "--run"},
		{line{"check", "--prefix", url}, "want one URL"},
		{line{"bench", "--rounds", url, "mem://x"}, "--rounds"},
		{line{"compare", "--html", url + "/page.html", "mem://x"}, "--html"},
		{line{"inspect", url}, "URL NAME"},
		{line{"inspect", "mem://x", url}, "the name of the lock is a URL"},
	}
}

// A slip is shown to all who read the terminal, the log or cron's mail.
func TestUsage_showsNoSecretAfterASlip(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://:seCret@127.0.0.1:1/0", "rediss://user:seCret@h?tls_ca=x"} {
		for _, slip := range slips(url) {
			args, says := slip[0].([]string), slip[1].(string)
			o := lockedWith(t, []string{"LOCKER_URL=mem://x"}, args...)
			if says != "" { // and not help, which is a success
				assert.Contains(t, []int{exitUsage, exitNotFound, exitCannotRun}, o.code, "%q: %s", args, o.stderr)
			}
			assert.NotContains(t, o.stderr+o.stdout, "eCret", "%q", args)
			assert.Contains(t, o.stderr, says, "%q: what was wrong is said", args)
		}
	}
}

// What other programs call it.
func TestUsage_namesTheNearestCommand(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{"unlock": "release", "status": "inspect", "ls": "list", "lock": "run", "inspekt": "inspect"} {
		o := lockedWith(t, nil, typed)
		assert.Equal(t, exitUsage, o.code)
		assert.Contains(t, o.stderr, want, typed)
	}
}
