package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	name := flag.String("name", "go test", "stands at the beginning of the summary")
	to := flag.String("to", "", "file that the summary is appended to")
	failures := flag.String("failures", "", "file that the failed and the unsteady tests are appended to")
	times := flag.String("times", "", "file that the time of each test is appended to")
	command := flag.String("go", "go", "the go command")
	dir := flag.String("dir", ".", "directory in which go test runs")
	flag.Parse()

	suite := suite{command: *command, dir: *dir, w: os.Stdout}
	code, err := suite.runAll(*name, flag.Args(), files{summary: *to, failures: *failures, times: *times})
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// files are the paths of the files that a run adds to. An empty path is no file.
type files struct {
	summary, failures, times string
}

// runAll runs the tests, then the failed ones that may be unsteady, and writes the summary. It returns the exit status.
func (s suite) runAll(name string, args []string, to files) (code int, err error) {
	start := time.Now()
	r, code, err := s.run(args, nil)
	if r == nil {
		return code, err
	}
	if code != 0 && err == nil {
		s.runAgain(r, args)
		if r.forgiven() {
			code = 0
		}
	}

	text := r.summary(name, time.Since(start), code == 0 && err == nil)
	fmt.Fprint(s.w, text)
	return code, errors.Join(err,
		appendTo(to.summary, text),
		appendTo(to.failures, r.failureList(name)),
		appendTo(to.times, r.timeList(name)),
	)
}

func appendTo(path, text string) error {
	if path == "" || text == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("appending to a list of the run: %w", err)
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
