package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMan_hasWhatHelpHas(t *testing.T) {
	var page bytes.Buffer
	root := newRoot()
	require.NoError(t, writeMan(&page, root))
	plain := strings.ReplaceAll(page.String(), `\-`, "-")
	for _, c := range root.Commands() {
		if c.Name() == "help" || c.Name() == "completion" || c.Hidden {
			continue
		}
		assert.Contains(t, plain, "\n.SS "+c.CommandPath(), c.Name())
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { assert.Contains(t, plain, "--"+f.Name, c.Name()) })
	}
	assert.Contains(t, plain, exitHelp)
	for line := range strings.Lines(plain) {
		assert.NotRegexp(t, `^'|^\.([^A-Zfn]|$)`, line, "no line of a text is taken for a request")
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		return // what it would say cannot be seen here
	}
	cmd := exec.Command(groff, "-K", "utf8", "-man", "-ww", "-z")
	cmd.Stdin = &page
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Empty(t, string(out), "warnings")
}
