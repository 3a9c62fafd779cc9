package fence

import (
	"errors"
	"strconv"
)

// ErrMarkGone means that a resource is no longer in the state in which it was marked: another has
// marked it, or written. Nothing was written. The caller may have lost the lock, or may hold it: see [Mark].
var ErrMarkGone = errors.New("the resource no longer bears the mark")

// Mark returns a value that only this holder of the lock has. It is for a resource that compares for
// equality, and cannot refuse a smaller token. Holders
//
//  1. put their mark on the resource,
//  2. read it, and
//  3. write on condition that the mark is still there.
//
// (Salvatore Sanfilippo, "Is Redlock safe?", 2016.) This is optimistic concurrency, which the lock makes
// rarely fail, and gives what that gives: nobody's mark or write that comes between another's mark and its
// write is overwritten. It is less than a fence:
//
//   - The order of holders is not kept. A holder that is paused before it marks, and wakes up after its lock is
//     lost, marks over the mark of its successor. Then it may write, and the successor, who holds the
//     lock, is refused.
//   - What was read before the mark may be out of date, and a write made of it undoes another's.
//   - Several resources are not one step: of two, a holder may have written the first when it is refused the second.
//   - A holder that is refused cannot tell which of the two it is.
//
// So check the token where that is possible. For a token of 0 Mark returns an error that matches [ErrStale].
func Mark(name string, token uint64) (string, error) {
	if err := Check(name, token, 0); err != nil {
		return "", err
	}
	return name + "#" + strconv.FormatUint(token, 10), nil
}
