package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errCompile is returned for a mutant that does not compile.
var errCompile = errors.New("the mutant does not compile")

// A suite is the compiled tests of one package.
type suite struct {
	root, dir string // the module's root; the package's directory below it
	binary    string
}

// compile builds the tests of a package. Each path of overlay is replaced by the
// file that it maps to.
func compile(ctx context.Context, root, dir, binary string, overlay map[string]string, flags ...string) (*suite, error) {
	args := append([]string{"test", "-c", "-vet=off", "-o", binary}, flags...)
	if overlay != nil {
		data, err := json.Marshal(map[string]any{"Replace": overlay})
		if err != nil {
			return nil, fmt.Errorf("encoding the overlay: %w", err)
		}
		if err := os.WriteFile(binary+".json", data, 0o600); err != nil {
			return nil, fmt.Errorf("writing the overlay: %w", err)
		}
		args = append(args, "-overlay", binary+".json")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+dir)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling the tests of %s: %w: %w\n%s", dir, errCompile, err, out)
	}
	return &suite{root: root, dir: dir, binary: binary}, nil
}

// names returns the tests, examples and seeded fuzz targets of the suite.
func (s *suite) names(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, s.binary, "-test.list", ".")
	cmd.Dir = filepath.Join(s.root, s.dir)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests of %s: %w", s.dir, err)
	}
	names := strings.Fields(string(out))
	return slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, "Benchmark") }), nil
}

// failed matches the line of a test that failed or panicked, at any depth.
var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\w+)|^\s+(Test\w+|Fuzz\w+|Example\w*)(?:/.*)? \(\d+`)

// run runs the named tests and returns the name of the one that failed, or "".
// A suite that still runs after limit is killed with all of its processes, and
// has failed: the mutant does not end.
func (s *suite) run(ctx context.Context, tests []string, limit time.Duration, flags ...string) (killer string) {
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	args := append([]string{"-test.run", "^(" + strings.Join(tests, "|") + ")$", "-test.failfast", "-test.short", "-test.timeout", limit.String()}, flags...)
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Dir = filepath.Join(s.root, s.dir)
	cmd.Env = append(os.Environ(), "FLOWTALLY_SEED=1", "FLOWTALLY_SOFT="+filepath.Join(filepath.Dir(s.binary), "soft"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	group := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = group
	cmd.WaitDelay = 5 * time.Second // a process that left the group may hold the pipe
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.Process != nil {
		group()
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return ""
	}
	for _, m := range failed.FindAllStringSubmatch(out.String(), -1) {
		if name := m[1] + m[2]; name != "" {
			return name
		}
	}
	if len(tests) == 1 {
		return tests[0]
	}
	return "the end of the process"
}

// A test is the result of a test in the first run, without a change.
type test struct {
	Name    string
	Took    time.Duration
	Covered map[string][][2]int // by fileKey: first and last lines
}

// covers tells whether the test ran line n of the file.
func (t test) covers(file string, n int) bool {
	return slices.ContainsFunc(t.Covered[fileKey(file)], func(b [2]int) bool { return b[0] <= n && n <= b[1] })
}

// coverPattern returns the pattern of the packages whose lines the tests of dir may run.
func coverPattern(dir string) string {
	if slices.Contains(wholes, dir) {
		return dir + "/..."
	}
	return dir
}

// fileKey returns the last directory and the name of a file.
func fileKey(path string) string {
	return filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path)
}

// measure runs every test of a package alone, and returns those that pass within
// limit, the shortest first.
func measure(ctx context.Context, root, dir, tmp string, limit time.Duration) ([]test, error) {
	if !tested(root, dir) {
		return nil, nil
	}
	s, err := compile(ctx, root, dir, filepath.Join(tmp, "baseline.test"), nil, "-cover", "-covermode=atomic", "-coverpkg=./"+coverPattern(dir))
	if err != nil {
		return nil, err
	}
	names, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	var all []test
	for _, name := range names {
		profile := filepath.Join(tmp, "profile")
		os.Remove(profile)
		start := time.Now()
		killer := s.run(ctx, []string{name}, limit, "-test.coverprofile", profile)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if killer != "" {
			fmt.Fprintf(os.Stderr, "mutate: %s %s does not pass within %s by itself: left out\n", dir, name, limit)
			continue
		}
		covered, err := readProfile(profile)
		if err != nil {
			return nil, fmt.Errorf("reading the coverage of %s: %w", name, err)
		}
		all = append(all, test{Name: name, Took: time.Since(start), Covered: covered})
	}
	slices.SortStableFunc(all, func(a, b test) int { return int(a.Took - b.Took) })
	return all, nil
}

// readProfile returns the lines of a coverage profile that ran, by fileKey.
func readProfile(path string) (map[string][][2]int, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	covered := make(map[string][][2]int)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// import/path/file.go:12.30,14.2 2 1: from, to, statements, count
		place, counts, ok := strings.Cut(lines.Text(), " ")
		if !ok || strings.HasSuffix(counts, " 0") {
			continue
		}
		name, span, ok := strings.Cut(fileKey(place), ":")
		from, to, ok2 := strings.Cut(span, ",")
		if !ok || !ok2 {
			continue
		}
		first, _, _ := strings.Cut(from, ".")
		last, _, _ := strings.Cut(to, ".")
		a, err := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("parsing %q: %w", lines.Text(), err)
		}
		covered[name] = append(covered[name], [2]int{a, b})
	}
	return covered, lines.Err()
}
