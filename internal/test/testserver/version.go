package testserver

import (
	"debug/buildinfo"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
)

// Version returns the version of a server's program: of one written in Go what it was built from,
// or the day of that, and else what it prints.
func Version(program string) (string, error) {
	path, err := find(program)
	if err != nil {
		return "", err
	}
	return versionAt(path)
}

var (
	versions sync.Map // by path
	number   = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)
	pseudo   = regexp.MustCompile(`^v0\.0\.0-(\d{4})(\d\d)(\d\d)`)
)

func versionAt(path string) (string, error) {
	version, _ := versions.LoadOrStore(path, sync.OnceValues(func() (string, error) {
		var text string
		if info, err := buildinfo.ReadFile(path); err == nil {
			text = info.Main.Version
		}
		if day := pseudo.FindStringSubmatch(text); day != nil {
			return strings.Join(day[1:], "-"), nil
		}
		if !number.MatchString(text) {
			out, _ := exec.Command(path, "--version").CombinedOutput()
			text = string(out)
		}
		if version := number.FindString(text); version != "" {
			return version, nil
		}
		return "", fmt.Errorf("%s tells no version: %s", path, text)
	}))
	return version.(func() (string, error))()
}
