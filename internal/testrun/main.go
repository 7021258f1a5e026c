package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"
)

func main() {
	name := flag.String("name", "go test", "stands at the beginning of the summary")
	to := flag.String("to", "", "file that the summary is appended to")
	command := flag.String("go", "go", "the go command")
	flag.Parse()
	code, err := run(*command, *name, *to, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run runs go test with args and returns its exit status.
func run(command, name, to string, args []string) (code int, err error) {
	start := time.Now()
	cmd := exec.Command(command, append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("making a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting go test: %w", err)
	}
	r := newReport(os.Stdout)
	readErr := r.read(out)
	err = cmd.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		code, err = exit.ExitCode(), nil
		if code < 0 {
			err = exit // ended by a signal
		}
	}
	text := r.summary(name, time.Since(start), code == 0 && err == nil)
	fmt.Print(text)
	return code, errors.Join(readErr, err, appendTo(to, text))
}

func appendTo(path, text string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("writing the summary: %w", err)
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
