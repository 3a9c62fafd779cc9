package httpfence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/go-locker/locker/fence"
)

const (
	problemType = "application/problem+json"
	typeBase    = "https://github.com/go-locker/locker/tree/main/fence/httpfence#"
	staleType   = typeBase + "stale-token"
	unknownType = typeBase + "unknown-tokens"
)

// problem is the body of a refusal, as RFC 9457 has it. Tokens are strings: numbers of JSON are exact to 2^53 only
// in most readers.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Token  uint64 `json:"token,string,omitempty"`
	Newest uint64 `json:"newest,string,omitempty"`
}

var (
	missing = &problem{
		Type: typeBase + "missing-token", Title: "A fencing token is required", Status: http.StatusPreconditionRequired,
		Detail: "a write needs the header field " + Header + ", with the token of the lock's holder",
	}
	malformed = &problem{
		Type: typeBase + "malformed-token", Title: "The fencing token is malformed", Status: http.StatusBadRequest,
		Detail: "a request needs one header field " + Header + ", of decimal digits, below 2^64",
	}
	unknown = &problem{
		Type: unknownType, Title: "Which fencing tokens were seen is not known", Status: http.StatusServiceUnavailable,
		Detail: "nothing was written, and nothing will be until the newest token is put where the resource keeps it",
	}
	unavailable = &problem{
		Type: "about:blank", Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
		Detail: "whether the fencing token is stale cannot be told now; nothing was written",
	}
)

// stale returns the answer to the token that err refuses.
func stale(token uint64, err error) *problem {
	p := &problem{Type: staleType, Title: "The fencing token is stale", Status: http.StatusPreconditionFailed, Token: token}
	if s, ok := errors.AsType[*fence.StaleError](err); ok {
		p.Newest = s.Newest
	}
	switch {
	case token == 0:
		p.Detail = "0 is the token of nobody: the lock is not held"
	case p.Newest == 0:
		p.Detail = fmt.Sprintf("the token is %d, and a later holder has written", token)
	default:
		p.Detail = fmt.Sprintf("the token is %d, and the holder of %d has written", token, p.Newest)
	}
	return p
}

func (p *problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // of strings and numbers
	}
	w.Header().Set("Content-Type", problemType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

// longest is how much of a body Check reads: a problem of ours has about 250 bytes.
const longest = 64 << 10

// Check returns nil unless resp refuses a write for its token or its mark. For the 412 of a
// [Handler] it returns a *[fence.StaleError]. For any other 412, to a request with If-Match, it
// returns an error that matches [fence.ErrMarkGone]. For the 503 of a Handler whose guard has
// returned ErrUnknown, it returns an error that matches [fence.ErrUnknown]. The body of resp can
// still be read, and has to be closed, whatever Check returns. A body that breaks off is an error
// too.
func Check(resp *http.Response) error {
	refused := resp.StatusCode == http.StatusPreconditionFailed
	if !refused && resp.StatusCode != unknown.Status {
		return nil
	}
	p, err := problemOf(resp)
	if err != nil {
		return fmt.Errorf("httpfence: read the body of a %d: %w", resp.StatusCode, err)
	}
	path, conditional := "", false
	if resp.Request != nil {
		path, conditional = resp.Request.URL.Path, resp.Request.Header.Get("If-Match") != ""
	}
	switch {
	case !refused && p.Type == unknownType:
		return fmt.Errorf("httpfence: %q: %w", path, fence.ErrUnknown)
	case !refused:
		return nil
	case p.Type == staleType:
		return &fence.StaleError{Resource: path, Token: p.Token, Newest: p.Newest}
	case conditional:
		return fmt.Errorf("httpfence: %q: %w", path, fence.ErrMarkGone)
	default:
		return nil
	}
}

// problemOf returns the problem in the body of resp, and an empty one if there is none.
func problemOf(resp *http.Response) (p problem, err error) {
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != problemType {
		return p, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, longest))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
	if err != nil {
		return p, err
	}
	if json.Unmarshal(body, &p) == nil {
		return p, nil
	}
	return problem{}, nil
}
