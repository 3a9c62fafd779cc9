package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"
	"go.yaml.in/yaml/v4"
)

// config is what the operator writes: service.yaml says more.
type config struct {
	Lock         string `yaml:"lock"`         // URL of the backend
	Database     string `yaml:"database"`     // file
	Certificates string `yaml:"certificates"` // folder
	Domain       string `yaml:"domain"`
	Listen       string `yaml:"listen"`
	Report       job    `yaml:"report"`
}

type job struct {
	Every   time.Duration `yaml:"every"`
	Minimum time.Duration `yaml:"minimum"` // hold of its lock
}

// load reads a file. A setting that nobody knows is a mistake. So is one that is missing: a process with locks or a database of its own does all again.
func load(file string) (c config, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	err = yaml.Load(text, &c, yaml.WithKnownFields())
	if err != nil && strings.Contains(err.Error(), "://") { // as a name, which the error has in full
		err = errors.New("a URL, which may hold a password, stands where the name of a setting should")
	}
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// check returns all that is wrong at once. The URL, and the minimum, which the backend has to honour, are for others to judge.
func (c config) check() error {
	var errs []error
	for _, s := range []struct{ key, value string }{
		{"lock", c.Lock}, {"database", c.Database}, {"certificates", c.Certificates}, {"domain", c.Domain}, {"listen", c.Listen},
	} {
		if s.value == "" {
			errs = append(errs, fmt.Errorf("%s: is missing", s.key))
		}
	}
	if c.Domain != "" && !certmagic.SubjectQualifiesForCert(c.Domain) {
		errs = append(errs, fmt.Errorf("domain: %q: there is no certificate for such a name", c.Domain))
	}
	if c.Report.Minimum <= 0 || c.Report.Minimum >= c.Report.Every {
		errs = append(errs, fmt.Errorf("report: minimum: %v: has to be above 0, and below every, which is %v", c.Report.Minimum, c.Report.Every))
	}
	return errors.Join(errs...)
}
