package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

// draw draws new mutants and prints the list of them for docs/testing.md.
func draw(ctx context.Context, root, commit, tmp string, o options) error {
	var all []Mutant
	tests := make(map[string][]test)
	for _, dir := range packages {
		of, err := sites(root, dir)
		if err != nil {
			return err
		}
		start := time.Now()
		if tests[dir], err = measure(ctx, root, dir, tmp, time.Minute); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "mutate: %s: %d places, %d tests in %s\n", dir, len(of), len(tests[dir]), time.Since(start).Round(time.Second))
		all = append(all, of...)
	}
	shuffle(all, o.seed)
	var list []string
	var survived, noncompiling int
	for _, m := range all {
		if len(list) == o.mutants {
			break
		}
		var v verdict
		var err error
		for _, dir := range m.testPackages(root) {
			meet := slices.DeleteFunc(slices.Clone(tests[dir]), func(t test) bool { return !t.covers(m.File, m.line) })
			var of verdict
			of, err = kill(ctx, root, tmp, m, dir, meet, o.limit)
			v.killer, v.ran = of.killer, v.ran+of.ran
			if err != nil || v.killer != "" {
				break
			}
		}
		if errors.Is(err, errCompile) && ctx.Err() == nil {
			noncompiling++
			continue
		}
		if err != nil {
			return err
		}
		line := fmt.Sprintf("killed    %s  %s", m, v.killer)
		if v.killer == "" {
			survived++
			line = fmt.Sprintf("survived  %s  %d tests", m, v.ran)
		}
		list = append(list, line)
		fmt.Fprintf(os.Stderr, "mutate: %d: %s (line %d)\n", len(list), line, m.line)
	}
	slices.Sort(list)
	fmt.Printf("seed %d, commit %.12s: %d mutants of %d places, %d survived; %d more did not compile\n\n", o.seed, commit, len(list), len(all), survived, noncompiling)
	for _, l := range list {
		fmt.Println(l)
	}
	return nil
}

// shuffle orders mutants by the seed.
func shuffle(all []Mutant, seed uint64) {
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}
