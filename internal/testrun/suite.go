package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// mostRepeats is the number of failed tests up to which each may be luck.
const mostRepeats = 10

// suite runs go test in one directory and shows its output.
type suite struct {
	command, dir string
	w            io.Writer
}

// run runs go test with args, and env added to the environment. It returns the report and the exit status.
func (s suite) run(args, env []string) (r *report, code int, err error) {
	cmd := exec.Command(s.command, append([]string{"test", "-json"}, args...)...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, fmt.Errorf("making a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, 0, fmt.Errorf("starting go test: %w", err)
	}

	r = newReport(s.w)
	readErr := r.read(out)
	err = cmd.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() > 0 {
		code, err = exit.ExitCode(), nil
	}
	return r, code, errors.Join(readErr, err) // err is left of a go command that a signal ended
}

// runAgain runs the failed tests once more, one after another, and marks the ones that pass as unsteady.
func (s suite) runAgain(r *report, args []string) {
	r.repeats = r.doubtful()
	if len(r.repeats) > mostRepeats {
		fmt.Fprintf(s.w, "testrun: %d tests failed: none is run again, as so many are no luck\n", len(r.repeats))
		return
	}
	flags := flagsOf(args)
	sources := make(map[string]*tests)
	for _, f := range r.repeats {
		if sources[f.pkg] == nil {
			read, err := s.readTests(f.pkg, flags)
			if err != nil {
				fmt.Fprintf(s.w, "testrun: %s: no test is run again: %v\n", f.pkg, err)
			}
			sources[f.pkg] = read
		}
		why := sources[f.pkg].realTime(f.name)
		if why == "" {
			fmt.Fprintf(s.w, "testrun: %s has no real time: it is not run again\n", f)
			continue
		}
		fmt.Fprintf(s.w, "testrun: %s has real time (%s): it is run once more, alone\n", f, why)
		again, code, err := s.run(repeatArgs(flags, f), f.seedEnv())
		if err != nil {
			fmt.Fprintf(s.w, "testrun: running %s again: %v\n", f, err)
		}
		f.unsteady = code == 0 && err == nil && again.passed[f.test]
	}
}

// flagsOf returns the flags among the arguments of go test.
func flagsOf(args []string) (flags []string) {
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			flags = append(flags, a)
		}
	}
	return flags
}

// repeatArgs returns the arguments of go test that run one failed test alone.
func repeatArgs(flags []string, f *failure) (args []string) {
	for _, a := range flags {
		name := strings.TrimLeft(a, "-")
		if !strings.HasPrefix(name, "run=") && !strings.HasPrefix(name, "count=") {
			args = append(args, a)
		}
	}
	args = append(args, "-count=1", "-run=^"+f.name+"$", f.pkg)
	if seed := f.rapidSeed(); seed != "" {
		args = append(args, "-rapid.seed="+seed) // behind the package, as go test does not know the flag
	}
	return args
}
