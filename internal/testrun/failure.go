package main

import (
	"regexp"
	"strings"
)

// messageLines is how many lines of a failure the list of unsteady tests shows.
const messageLines = 6

var (
	loggedSeed = regexp.MustCompile(`\bFLOWTALLY_SEED=\d+`) // internal/lab/seed logs it
	rapidSeed  = regexp.MustCompile(`-rapid\.seed=(\d+)`)   // pgregory.net/rapid logs it when a test fails
)

// failure is a failed test with its output, or a package that failed outside of its tests.
type failure struct {
	test
	output   []string
	unsteady bool // it passed when it was run again
}

// message returns the first lines that the test printed, and the seed if it is further behind.
func (f *failure) message() (lines []string) {
	for _, line := range f.output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if len(lines) < messageLines || loggedSeed.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// seedEnv returns the environment that repeats the seed which the test logged last. A test that draws at random must not
// be forgiven because the second draw missed the fault.
func (f *failure) seedEnv() []string {
	if all := loggedSeed.FindAllString(strings.Join(f.output, ""), -1); len(all) > 0 {
		return all[len(all)-1:]
	}
	return nil
}

// rapidSeed returns the seed of a property that pgregory.net/rapid falsified, or "".
func (f *failure) rapidSeed() string {
	if m := rapidSeed.FindStringSubmatch(strings.Join(f.output, "")); m != nil {
		return m[1]
	}
	return ""
}
