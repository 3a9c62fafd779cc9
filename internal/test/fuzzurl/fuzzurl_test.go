package fuzzurl

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestShows(t *testing.T) {
	for _, text := range []string{
		"a" + Secret + "b", "s3cret", "%53%33%43%52%45%54", fmt.Sprintf("%x", Secret), fmt.Sprint([]byte(Secret)), url.QueryEscape("&" + Secret),
	} {
		assert.True(t, Shows(text), text)
	}
	assert.False(t, Shows("parameter sentinel_password is empty"))
}
