package filefence

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// lines is how often a content says its token: enough for several writes of the system's.
const lines = 20000

// writeToken writes a content that tells by which token it was written, and whether it is whole.
func writeToken(ctx context.Context, name string, token uint64) error {
	return Write(ctx, name, token, []byte(strings.Repeat(strconv.FormatUint(token, 10)+"\n", lines)), 0o644)
}

// tokenIn is by which token the content was written.
func tokenIn(name string) (uint64, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if string(b) != strings.Repeat(line+"\n", lines) {
		return 0, fmt.Errorf("%s is not whole: %d bytes", name, len(b))
	}
	return strconv.ParseUint(line, 10, 64)
}
