package filefence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-locker/locker/fence"
)

// Dir is a [fence.Guard] that survives restarts, and that the processes of a machine can share. Its
// value is the path of the directory in which it keeps the tokens. The directory has to exist:
// otherwise a volume that is not mounted would be taken for one that has seen no token.
//
// Each resource has three small files there for ever, named by the SHA-256 of its name in
// hexadecimal: one that holds the name, for people who look, and beside it the two that the package
// describes. Their mode is 0600.
type Dir string

var _ fence.Guard = Dir("")

// Write implements [fence.Guard]. The token is on disk before write is called. If ctx ends while
// another write is under way, Write returns an error with ctx's cause. The error or panic of write
// is handed over as it is.
func (d Dir) Write(ctx context.Context, resource string, token uint64, write func(context.Context) error) error {
	if d == "" { // a setting that was forgotten, and no wish for the working directory
		return wrap(resource, errors.New("the Dir has no name"))
	}
	sum := sha256.Sum256([]byte(resource))
	f, err := open(filepath.Join(string(d), hex.EncodeToString(sum[:])), resource)
	if err != nil {
		return err
	}
	const perm = 0o600
	var failed error
	err = f.fenced(ctx, token, perm, func(newest uint64) error {
		if err := f.raise(newest, token, perm); err != nil {
			return err
		}
		if err := f.sign(perm); err != nil {
			return err
		}
		failed = write(ctx)
		return nil
	})
	if err != nil {
		return err
	}
	return failed
}

// sign leaves the resource's name where a file's content would be, so that a token which is deleted is
// missed.
func (f file) sign(perm fs.FileMode) error {
	if _, err := os.Lstat(f.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.put(f.staged(), f.path, strings.NewReader(f.resource+"\n"), perm)
}
