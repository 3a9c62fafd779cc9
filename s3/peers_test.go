package s3_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lockFile is the protocol of OpenTofu 1.12 (internal/backend/remote-state/s3/client.go), by hand:
// its package cannot be imported. Terraform's is the same.
type lockFile struct {
	client *awss3.Client
	id     string
}

var lockFileKey = aws.String("state.tflock")

func (l lockFile) lock(t *testing.T) error {
	t.Helper()
	_, err := l.client.PutObject(t.Context(), &awss3.PutObjectInput{
		Bucket: aws.String("bucket"), Key: lockFileKey, Body: bytes.NewReader([]byte(l.id)), IfNoneMatch: aws.String("*"),
	})
	return err
}

func (l lockFile) holder(t *testing.T) string {
	t.Helper()
	out, err := l.client.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: aws.String("bucket"), Key: lockFileKey})
	if err != nil {
		return ""
	}
	defer func() { _ = out.Body.Close() }()
	id, err := io.ReadAll(out.Body)
	require.NoError(t, err)
	return string(id)
}

func (l lockFile) unlock(t *testing.T) error {
	t.Helper()
	if l.holder(t) != l.id {
		return errors.New("the lock is another's")
	}
	_, err := l.client.DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: aws.String("bucket"), Key: lockFileKey})
	return err
}

// opentofu/opentofu#4405: the reply is lost, the SDK sends the request again, and the answer is
// taken for another's lock.
func TestPeers_aLockFileIsLockedByItself(t *testing.T) {
	r := relayTo(t, newFake())
	l := lockFile{r.client(t), "a"}
	lose(r, 1, http.MethodPut)
	require.ErrorContains(t, l.lock(t), "412")
	assert.Equal(t, "a", l.holder(t), "it was told that it has no lock, has it, and never gives it back")
}

// A release reads, and then deletes whatever is there: a holder that has stopped in between takes
// another's lock away.
func TestPeers_aLockFileIsDeletedThoughItIsAnothers(t *testing.T) {
	r := relayTo(t, newFake())
	a, b, c := lockFile{r.client(t), "a"}, lockFile{r.client(t), "b"}, lockFile{r.client(t), "c"}
	require.NoError(t, a.lock(t))
	r.answer(func(w http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodDelete {
			r.answer(nil)
			assert.NoError(t, errors.Join(a.unlock(t), b.lock(t))) // an operator's force-unlock, and another
		}
		r.store.ServeHTTP(w, request)
	})
	require.NoError(t, a.unlock(t))
	assert.NoError(t, c.lock(t), "b still holds the lock")
}
