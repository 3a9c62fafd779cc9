package httpfence

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// IfMatch sets the header field If-Match of a request, the parameter write, to the entity tag of an
// earlier response, the parameter marked. So the server does the write only if the resource is
// still in the state after the earlier write. This is for servers without a fence that compare
// entity tags, object stores above all:
//
//	PUT the object with the mark of the lock in it (fence.Mark)       → marked
//	read it, make the new content, with or without the mark
//	IfMatch(write, marked), and PUT it                                → marked, for the next write
//
// A write that is answered with 412 has found another state, see [Check]. If the answer to a write
// is lost, the state is not known, and a repetition may be refused because the first write was
// done. [fence.Mark] says what all this gives, and what it does not.
//
// The tag has to come with the answer to the write that marks: the tag that a later GET or HEAD
// returns may be that of another's state. And if tags are made from the content alone, as in S3,
// the write that marks has to have the mark in its content. IfMatch returns an error for a response
// that is no success, or has no entity tag, or only a weak one, which does not tell all states
// apart.
func IfMatch(write *http.Request, marked *http.Response) error {
	if marked.StatusCode < 200 || marked.StatusCode > 299 {
		return fmt.Errorf("httpfence: nothing was marked: %s", marked.Status)
	}
	tag := marked.Header.Get("ETag")
	switch {
	case strings.HasPrefix(tag, "W/"):
		return fmt.Errorf("httpfence: the entity tag %s is weak: it does not tell all states apart", tag)
	case len(tag) < 2 || tag[0] != '"' || tag[len(tag)-1] != '"':
		return errors.New("httpfence: the answer to the write that marks has no entity tag")
	}
	write.Header.Set("If-Match", tag)
	return nil
}
