// Package filefence replaces files under a fencing token, which is kept beside them.
//
// [Write] is os.WriteFile with a token. [Read] checks and stores the token before it reads. Beside
// config.json there are then
//
//	config.json.fence       the newest token that the file has seen, a decimal number on a line
//	config.json.fence.lock  empty; locked during a write, by flock or what the system has in its place
//
// While a write is under way, there are also config.json.fence.data and config.json.fence.new. They
// stay after a crash or a full disk, until the next write removes them. The token is not in the
// file, because the content is yours, and not in extended attributes, because they are lost with
// the first copy. The lock has a file of its own, because a write replaces the other files, and a
// lock on a file that was replaced excludes nobody. All writers have to use this package, with the
// right to write into the directory and to open the lock's file for writing. Move, restore and
// delete the files config.json.fence… together with the file, and never while somebody may be
// writing.
//
// # Who may write
//
// The lock's file is open to its owner, and to its group if perm and the umask let the group write;
// to nobody else. A user who can open it, even for reading, can lock it and keep all writers out.
// So writers of several users share a group, and begin with a perm such as 0664 and a umask such as
// 002. A lock's file that exists keeps its mode. If it has permissions for others, take them away
// (chmod o= *.fence.lock).
//
// # What a write does
//
// With the lock in hand: read the token, and refuse a stale one; write the new content to a file of
// its own, and fsync it; if the token rises, replace the token's file in the same way; rename the
// new content over the old, and fsync the directory. So a crash, of the process or of the machine,
// leaves the whole old content or the whole new one, and the token of that content is stored. But
// if the crash comes after the token's file was replaced, and before the content was, the stored
// token is newer than the content. Readers need no lock. Windows cannot fsync a directory, and
// there a replacement also fails while another process has the file open.
//
// A writer that is stopped with the lock in hand makes all others wait, until it goes on, dies or
// is killed: this is the price of a check and a rename that nobody can get between. The ctx of the
// others bounds their wait. Kill the stopped writer. Do not delete the lock's file, or the writer
// overwrites the others when it wakes. A stopped writer that does not have the lock yet is no
// obstacle: once a later holder has written, it is refused.
//
// A file that exists without its token is an error, [fence.ErrUnknown], and so is a token that is
// not a number: nobody knows which tokens such a file has seen, and none is guessed. To put an
// existing file under the fence, or to repair it, write the newest token into the token's file, or
// 0 if there never was one:
//
//	echo 0 > config.json.fence
//
// # Where it holds
//
// The fence holds on file systems of one machine, if flock excludes other processes, and rename is
// atomic. On NFS it is neither promised nor tested: clients cache names and contents, a server
// forgets the locks of a client that it does not hear of, and a rename whose reply is lost may be
// done twice.
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

// Write replaces the content of the named file with data, in one step, unless the token is stale:
// then the error matches [fence.ErrStale]. A token that is accepted for the first time is on the
// disk of this machine when Write returns.
//
// If the file does not exist, it is made with perm, less the umask. If it exists, it keeps its
// mode, and also its owner and group if the process may set them. If the process cannot keep the
// group, the new file has another one. Then a permission of the group or of others stays only if
// the file gave it to the group and to others. So 0640 becomes 0600, and 0644 stays. Access control
// lists and extended attributes are not kept. If name is a symbolic link, the file that it leads to
// is replaced, and the token is beside that file. Other hard links keep the old content.
//
// While another writer has the lock, Write tries again every few milliseconds. If ctx ends first,
// its cause is in the error. After an error the content is the old one, unless only the fsync of
// the directory failed, which comes last. The token may be stored all the same.
func Write(ctx context.Context, name string, token uint64, data []byte, perm fs.FileMode) error {
	return WriteFrom(ctx, name, token, bytes.NewReader(data), perm)
}

// WriteFrom is [Write] of what r yields until io.EOF. It reads r while it has the lock, so others
// wait for a slow r. The end of ctx does not interrupt r.Read. If the token is stale, WriteFrom
// reads nothing.
func WriteFrom(ctx context.Context, name string, token uint64, r io.Reader, perm fs.FileMode) error {
	return replace(ctx, name, token, r, perm, func(step) {})
}

// Read stores the token on disk, as [Write] does, and then returns the content of the named file,
// or nil if there is no such file. If the token is stale, the error matches [fence.ErrStale]. Read
// is for a holder that reads before it writes: until a later holder comes, what it has read stays
// as it is. If Read makes the token's file, it does so with perm. It waits as Write does.
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
