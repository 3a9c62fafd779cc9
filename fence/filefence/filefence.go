// Package filefence replaces files under a fencing token, which is kept beside them.
//
// [Write] is os.WriteFile with a token, and [Read] shows the token before it reads. Beside config.json are then
//
//	config.json.fence       the newest token that the file has seen, a decimal number on a line
//	config.json.fence.lock  empty; locked during a write, by flock or what the system has in its place
//
// and, while a write is under way or after one that a crash or a full disk has ended, config.json.fence.data and .new,
// which the next write removes. The token is not in the file, for that is yours, and not in extended attributes, which are
// lost with the first copy. The lock is a file of its own because the other two are replaced, and a lock on
// a file that was replaced excludes nobody. All writers have to come through this package, with the right to
// write into the directory and to open the lock's file for writing. What is named config.json.fence… has to move, be
// restored and be deleted together with the file, and never while somebody may be writing.
//
// # Who may write
//
// The lock's file is open to its owner, and to its group if that may write by perm and the umask; to nobody else. Who
// can open it, be it for reading, can lock it and keep all writers out. So writers of several users share a group, and
// begin with a perm such as 0664 and a umask such as 002. A lock's file that exists keeps its mode: take the permissions of others
// away from one that has them (chmod o= *.fence.lock).
//
// # What a write does
//
// With the lock in hand: read the token, and refuse a stale one; write the new content to a file of its own,
// and fsync it; if the token rises, replace the token's file in the same way; rename the new content over the
// old, and fsync the directory. So a crash, of the process or of the machine, leaves the old content or
// the new one, whole, and never content whose token is not seen: at worst a token is seen that has written
// nothing. Readers need no lock. Windows cannot fsync a directory, and there a replacement also fails while
// another process has the file open.
//
// A writer that is stopped with the lock in hand makes all others wait, until it goes on, dies or is
// killed: that is the price of a check and a rename that nobody can get between. The ctx of the others bounds
// their wait. Kill it, and do not delete the lock's file: then it would write over the others when it wakes. A
// stopped writer that has not reached the lock is no obstacle: once a later holder has written it is refused.
//
// A file that exists without its token is an error, [fence.ErrUnknown], and so is a token that is not a
// number: what such a file has seen nobody knows, and it is not guessed. To put an existing file under
// the fence, or to repair it, write the newest token into the token's file, or 0 if there never was
// one:
//
//	echo 0 > config.json.fence
//
// # Where it holds
//
// On file systems of one machine, whose flock excludes and whose rename is atomic. On NFS it is neither promised
// nor tested: clients cache names and contents, a server forgets the locks of a client that it does not
// hear of, and a rename whose reply is lost may be done twice.
package filefence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/go-locker/locker/fence"
)

// Write replaces the content of the named file with data, in one step, unless the token is stale: then
// the error matches [fence.ErrStale]. A token that is accepted for the first time is seen from
// then on, on the disk of this machine too, when Write returns.
//
// A file that does not exist is made with perm, less the umask; one that does keeps its mode, and
// its owner and group where the process may set them. Where the group is another then, it and all others may
// do what both could before: of 0640 remains 0600, and 0644 stays. Access control lists and extended attributes
// are not kept. Of a symbolic link the file that it leads to is replaced, and the token is beside that. Other
// hard links keep the old content.
//
// Write looks every few milliseconds whether it is its turn, until ctx ends, whose cause is then in the
// error. After an error the content is the old one, unless all that failed was to synchronize the directory in the
// end. The token may be seen all the same.
func Write(ctx context.Context, name string, token uint64, data []byte, perm fs.FileMode) error {
	return WriteFrom(ctx, name, token, bytes.NewReader(data), perm)
}

// WriteFrom is [Write] of what r yields until io.EOF. It reads r while it has the lock, so r should not
// keep others waiting for long: ctx does not interrupt a Read. Of a stale writer's it reads nothing.
func WriteFrom(ctx context.Context, name string, token uint64, r io.Reader, perm fs.FileMode) error {
	return replace(ctx, name, token, r, perm, func(step) {})
}

// Read returns the content of the named file, and nil if there is no such file, as of a moment from which on the token is
// seen, on the disk too, unless it is stale: then the error matches [fence.ErrStale]. It is for a holder that reads before
// it writes: until a later holder comes, what it has read stays as it is. perm is what the token's file is made with, and it
// waits as [Write] does.
func Read(ctx context.Context, name string, token uint64, perm fs.FileMode) (data []byte, err error) {
	f, err := open(name, name)
	if err != nil {
		return nil, err
	}
	err = f.fenced(ctx, token, perm, func(newest uint64) error {
		if err := f.raise(newest, token, perm); err != nil {
			return err
		}
		data, err = os.ReadFile(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return data, err
}

// step is how far a write has come. It is how tests know where they stop one.
type step string

const (
	arrived step = "arrived" // and has no lock yet
	checked step = "checked"
	staged  step = "staged" // the new content is on disk, in a file of its own
	raised  step = "raised" // the token is seen
	renamed step = "renamed"
)

func replace(ctx context.Context, name string, token uint64, r io.Reader, perm fs.FileMode, at func(step)) error {
	f, err := open(name, name)
	if err != nil {
		return err
	}
	at(arrived)
	return f.fenced(ctx, token, perm, func(newest uint64) error {
		at(checked)
		defer func() { _ = os.Remove(f.staged()) }() // nothing, unless what follows fails
		if err := stage(f.staged(), f.path, r, perm); err != nil {
			return err
		}
		at(staged)
		if ctx.Err() != nil { // reading may have taken long
			return context.Cause(ctx)
		}
		if err := f.raise(newest, token, perm); err != nil {
			return err
		}
		at(raised)
		if err := os.Rename(f.staged(), f.path); err != nil {
			return err
		}
		at(renamed)
		return f.syncDir()
	})
}

// wrap adds the package and the resource to err. A stale token's error has the resource already.
func wrap(resource string, err error) error {
	if err == nil || errors.Is(err, fence.ErrStale) {
		return err
	}
	return fmt.Errorf("filefence: %q: %w", resource, err)
}
