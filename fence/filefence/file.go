package filefence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/go-locker/locker/fence"
)

// file is one that has its token beside it.
type file struct {
	path     string // not of a symbolic link
	resource string // what errors call it
}

// What is added to the path.
const (
	tokenSuffix    = ".fence"
	lockSuffix     = tokenSuffix + ".lock"
	stagedSuffix   = tokenSuffix + ".data"
	newTokenSuffix = tokenSuffix + ".new"
)

func (f file) token() string    { return f.path + tokenSuffix }
func (f file) lock() string     { return f.path + lockSuffix }
func (f file) staged() string   { return f.path + stagedSuffix }
func (f file) newToken() string { return f.path + newTokenSuffix }

// open finds out what name stands for. Two names of one file have to lead to one token.
func open(name, resource string) (file, error) {
	f := file{name, resource}
	for _, suffix := range []string{tokenSuffix, lockSuffix, stagedSuffix, newTokenSuffix} {
		if strings.HasSuffix(name, suffix) {
			return f, wrap(resource, fmt.Errorf("names that end in %s belong to this package", suffix))
		}
	}
	if name == "" {
		return f, wrap(resource, fs.ErrNotExist)
	}
	info, err := os.Lstat(name)
	if err == nil && info.Mode().Type() == fs.ModeSymlink {
		f.path, err = filepath.EvalSymlinks(name)
		if err == nil {
			info, err = os.Lstat(f.path)
		}
		if err != nil {
			return f, wrap(resource, err)
		}
	}
	if err == nil && !info.Mode().IsRegular() {
		return f, wrap(resource, errors.New("not a regular file"))
	}
	return f, nil
}

// pause is how long a writer waits before it looks again whether the lock is free: the system's own waiting
// knows no ctx.
const pause = 5 * time.Millisecond

// fenced calls write with the newest token that the file has seen, if token is not stale, and lets nobody
// else write meanwhile, in whatever process.
func (f file) fenced(ctx context.Context, token uint64, perm fs.FileMode, write func(newest uint64) error) error {
	if err := fence.Check(f.resource, token, 0); err != nil {
		return err
	}
	if err := f.makeLock(perm); err != nil {
		return wrap(f.resource, err)
	}
	// To be writable is what NFS asks of a file that is to be locked exclusively.
	l := flock.New(f.lock(), flock.SetFlag(os.O_RDWR))
	if _, err := l.TryLockContext(ctx, pause); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("wait for the lock on %s: %w", f.lock(), context.Cause(ctx))
		}
		return wrap(f.resource, err)
	}
	defer func() { _ = l.Unlock() }()
	newest, err := f.newest()
	if err != nil {
		return wrap(f.resource, err)
	}
	if err := fence.Check(f.resource, token, newest); err != nil {
		return err
	}
	return wrap(f.resource, write(newest))
}

// makeLock makes the lock's file, unless there is one. Its owner may open it, and its group if that may write by perm and the umask.
// Who could only read it could lock it all the same, and so keep all writers out.
func (f file) makeLock(perm fs.FileMode) error {
	const owner, group, groupReads, groupWrites = 0o600, 0o060, 0o040, 0o020
	mode := fs.FileMode(owner)
	if perm&groupWrites != 0 {
		mode |= group
	}
	l, err := os.OpenFile(f.lock(), os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	info, err := l.Stat()
	if err != nil || info.Mode()&group != groupReads {
		return err
	}
	return l.Chmod(info.Mode() &^ groupReads)
}

// newest is the largest token that the file has seen, and 0 if there is neither file nor token.
func (f file) newest() (uint64, error) {
	const longest = len("18446744073709551615\r\n")
	t, err := os.Open(f.token())
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(f.path); errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		return 0, fmt.Errorf("%w: %s is missing; write the newest token into it, or 0 if there was none", fence.ErrUnknown, f.token())
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = t.Close() }()
	text, err := io.ReadAll(io.LimitReader(t, int64(longest+1)))
	if err != nil {
		return 0, err
	}
	// Without the end of the line digits may be missing.
	digits, whole := strings.CutSuffix(string(text), "\n")
	newest, err := strconv.ParseUint(strings.TrimSuffix(digits, "\r"), 10, 64)
	if err != nil || !whole {
		return 0, fmt.Errorf("%w: %s holds %q, which is not a token on a line; write the newest token into it", fence.ErrUnknown, f.token(), text)
	}
	return newest, nil
}

// raise has token seen, also after a crash.
func (f file) raise(newest, token uint64, perm fs.FileMode) error {
	if token == newest {
		return nil
	}
	return f.put(f.newToken(), f.token(), strings.NewReader(strconv.FormatUint(token, 10)+"\n"), perm|0o600)
}

// put replaces target by what r yields, by way of temporary.
func (f file) put(temporary, target string, r io.Reader, perm fs.FileMode) error {
	if err := stage(temporary, target, r, perm); err != nil {
		return err
	}
	if err := os.Rename(temporary, target); err != nil {
		return err
	}
	return f.syncDir()
}

// stage writes to temporary, and to the disk, what is to become target, whose mode it takes over. What a crash has
// left there makes way.
func stage(temporary, target string, r io.Reader, perm fs.FileMode) error {
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old, err := os.Stat(target)
	if err == nil {
		perm = 0o600 // until the group is the old one's: at no time may more people read it
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Exclusively: who may write into the directory may have put a link there.
	t, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	defer func() { _ = t.Close() }() // once more, unless something fails
	if old != nil {
		if err := keepOwner(t, old); err != nil {
			return err
		}
	}
	if _, err := io.Copy(t, r); err != nil {
		return err
	}
	if err := t.Sync(); err != nil {
		return err
	}
	return t.Close()
}

// syncDir has the names in the directory of f survive a loss of power.
func (f file) syncDir() error {
	if runtime.GOOS == "windows" {
		return nil // which cannot
	}
	d, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // file systems that cannot say so by this
		return err
	}
	return nil
}
