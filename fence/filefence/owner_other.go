//go:build !unix

package filefence

import (
	"io/fs"
	"os"
)

// keepOwner gives t the mode of old.
func keepOwner(t *os.File, old fs.FileInfo) error { return t.Chmod(old.Mode()) }
