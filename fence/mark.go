package fence

import (
	"errors"
	"strconv"
)

// ErrMarkGone means that a resource is no longer in the state in which it was marked: another has
// marked it, or written. Nothing was written. The caller may have lost the lock, or may hold it:
// see [Mark].
var ErrMarkGone = errors.New("the resource no longer bears the mark")

// Mark returns a value that only this holder of the lock has. It is for a resource that compares
// for equality, and cannot refuse a smaller token. Holders
//
//  1. put their mark on the resource,
//  2. read it, and
//  3. write on condition that the mark is still there.
//
// (Salvatore Sanfilippo, "Is Redlock safe?", 2016.) This is optimistic concurrency control; the
// lock makes conflicts rare. A write fails if another holder has marked or written since the
// writer's own mark. That is less than a fence:
//
//   - The order of holders is not kept. A holder that is paused before it marks, and wakes up after
//     its lock is lost, marks over the mark of its successor. Then it may write, and the successor,
//     who holds the lock, is refused.
//   - What was read before the mark may be out of date, and a write that is made from it undoes
//     another's write.
//   - Several resources are not written in one step: a holder may have written the first of two
//     when the second refuses it.
//   - A holder that is refused cannot tell whether it still holds the lock.
//
// So check the token where that is possible. For a token of 0 Mark returns an error that matches
// [ErrStale].
func Mark(name string, token uint64) (string, error) {
	if err := Check(name, token, 0); err != nil {
		return "", err
	}
	return name + "#" + strconv.FormatUint(token, 10), nil
}
