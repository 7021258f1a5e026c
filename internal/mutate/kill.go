package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A verdict is the result of the tests on a mutant.
type verdict struct {
	killer string // the test that failed; "" when the mutant survived
	ran    int    // tests that met the mutant
}

// kill compiles a mutant's package with the change and runs tests, in their
// order, until one fails or until limit has passed. It returns errCompile where
// the change does not compile.
func kill(ctx context.Context, root, tmp string, m Mutant, dir string, tests []test, limit time.Duration) (verdict, error) {
	s, err := compileMutant(ctx, root, tmp, m, dir)
	if err != nil {
		return verdict{}, err
	}
	var v verdict
	for end := time.Now().Add(limit); len(tests) > 0 && time.Now().Before(end); {
		// Many short tests share a process; a long one has its own.
		n, took := 0, time.Duration(0)
		for n < len(tests) && (n == 0 || took+tests[n].Took < 5*time.Second) {
			took += tests[n].Took
			n++
		}
		names := make([]string, n)
		for i, t := range tests[:n] {
			names[i] = t.Name
		}
		tests = tests[n:]
		v.ran += n
		if v.killer = s.run(ctx, names, 20*time.Second+10*took); v.killer != "" {
			break
		}
	}
	return v, ctx.Err()
}

// compileMutant compiles the tests of the package in dir with the mutant's change.
func compileMutant(ctx context.Context, root, tmp string, m Mutant, dir string) (*suite, error) {
	path := filepath.Join(root, m.File)
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the source of a mutant: %w", err)
	}
	changed := filepath.Join(tmp, "mutant.go")
	if err := os.WriteFile(changed, m.apply(src), 0o600); err != nil {
		return nil, fmt.Errorf("writing a mutant: %w", err)
	}
	return compile(ctx, root, dir, filepath.Join(tmp, "mutant.test"), map[string]string{path: changed})
}
