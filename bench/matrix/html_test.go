package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/thirdparty"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/backends"
)

func TestHTML_hasEveryLockAndEveryPromise(t *testing.T) {
	bad := seen(conformance.Known, "", "")
	bad.Scenario, bad.Test, bad.Why = conformance.Scenarios()[0].Name, thirdparty.Programs()[0].Test, "by <design>"
	r := &Run{Results: map[string][]conformance.Result{otherLibraries: {bad}}}
	page, err := r.htmlPage()
	require.NoError(t, err)
	columns := len(backends.All) + len(thirdparty.All())
	assert.Equal(t, len(conformance.Scenarios()), strings.Count(page, `scope="row"`))
	assert.Equal(t, len(conformance.Scenarios())*columns, strings.Count(page, "<td "))
	assert.Equal(t, columns+1, strings.Count(page, "<button>"))
	assert.Equal(t, 1, strings.Count(page, `class="broken"`))
	assert.Contains(t, page, `title="by &lt;design&gt;. Seen: `)
	assert.Contains(t, page, `<a href="other-libraries/redis-py.md">why</a>`)
	assert.Contains(t, page, `<a href="conformance/taking.md#a-held-lock-is-not-granted-to-another-process">`)
	assert.NotRegexp(t, `(src|href)="(https?:)?//`, page, "it needs no network")
}
