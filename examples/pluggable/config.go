package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v4"
)

// config is what a file may hold.
type config struct {
	Locks   string   `yaml:"locks"`   // URL of the backend
	Ledger  string   `yaml:"ledger"`  // directory; empty: a new one, which goes with the process
	Jobs    []string `yaml:"jobs"`    // the plan
	Workers int      `yaml:"workers"` // in this process

	from string // who has chosen the locks
}

// locksVariable is where a URL with a password is best kept: flags can be read by everybody on the machine.
const locksVariable = "PLUGGABLE_LOCKS"

// configure takes each setting from the flags, else the environment, else the file, else it is the default.
func configure(args []string, getenv func(string) string, usage io.Writer) (config, error) {
	c := config{
		Locks: "mem://pluggable", Jobs: []string{"backup", "invoices", "newsletter"}, Workers: 2,
		from: "the default",
	}
	flags := flag.NewFlagSet("pluggable", flag.ContinueOnError)
	flags.SetOutput(usage)
	file := flags.String("config", "", "YAML file, as pluggable.yaml")
	locks := flags.String("locks", "", "URL of the backend (default "+c.Locks+"; or the environment's "+locksVariable+")")
	ledger := flags.String("ledger", "", "directory that all processes share (default: a new one)")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, errors.New("there are arguments that are no flags: a URL goes with -locks") // it may hold a password
	}
	if *file != "" {
		if err := c.read(*file); err != nil {
			return c, err
		}
	}
	for _, source := range []struct{ name, locks string }{
		{"the flag -locks", *locks}, {"the environment", getenv(locksVariable)},
	} {
		if source.locks != "" {
			c.Locks, c.from = source.locks, source.name
			break
		}
	}
	c.Ledger = cmp.Or(*ledger, c.Ledger)
	if c.Workers < 1 || len(c.Jobs) == 0 {
		return c, errors.New("there has to be a worker, and a job")
	}
	return c, nil
}

func (c *config) read(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before := c.Locks
	c.Locks = ""
	// A setting that nobody knows is a mistake, above all in the file that says where the locks are.
	if err := yaml.Load(text, c, yaml.WithKnownFields()); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if c.Locks == "" {
		c.Locks = before
		return nil
	}
	c.from = file
	return nil
}
