package filefence

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
)

func TestRead_showsItsToken(t *testing.T) {
	name := written(t, 33, "old")
	data, err := Read(t.Context(), name, 34, 0o644)
	require.NoError(t, err)
	assert.Equal(t, "old", string(data))
	require.ErrorIs(t, Write(t.Context(), name, 33, []byte("late"), 0o644), fence.ErrStale, "what was read stays as it is")
	_, err = Read(t.Context(), name, 33, 0o644)
	require.ErrorIs(t, err, fence.ErrStale)
	_, err = Read(t.Context(), name, 0, 0o644)
	require.ErrorIs(t, err, fence.ErrStale)
	require.NoError(t, Write(t.Context(), name, 34, []byte("new"), 0o644))
	has(t, name, "new")
	isTidy(t, name)
}

func TestRead_ofAFileThatIsNotThereShowsItsTokenToo(t *testing.T) {
	name := in(t)
	data, err := Read(t.Context(), name, 34, 0o600)
	require.NoError(t, err)
	assert.Nil(t, data)
	require.ErrorIs(t, Write(t.Context(), name, 33, []byte("late"), 0o600), fence.ErrStale)
	assert.NoFileExists(t, name)
	info, err := os.Stat(name + ".fence")
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o077)

	require.NoError(t, Write(t.Context(), name, 34, nil, 0o600))
	data, err = Read(t.Context(), name, 34, 0o600)
	require.NoError(t, err)
	assert.NotNil(t, data, "it is there, and empty")

	_, err = Read(t.Context(), filepath.Join(name+".d", "x"), 34, 0o600)
	require.ErrorIs(t, err, fs.ErrNotExist, "nor is there a directory in which the token could be seen")
}
