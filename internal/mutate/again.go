package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A listed mutant is a line of the document: it was killed by a test.
type listed struct {
	Mutant
	killer string
}

// again repeats killed mutants of the list. It fails when one of them survives,
// or when the list holds none that the sources still have.
func again(ctx context.Context, root, commit, tmp string, o options) error {
	text, err := os.ReadFile(filepath.Join(root, o.list))
	if err != nil {
		return fmt.Errorf("reading the list of mutants: %w", err)
	}
	list, gone, err := find(root, killedLines(string(text)))
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(commit[:16], 16, 64)
	if err != nil {
		return fmt.Errorf("parsing commit %s: %w", commit, err)
	}
	var order []Mutant
	killers := make(map[string]string)
	for _, l := range list {
		order = append(order, l.Mutant)
		killers[l.String()] = l.killer
	}
	shuffle(order, seed)
	start := time.Now()
	var killed int
	var survivors []string
	for _, m := range order {
		if killed+len(survivors) == o.again || time.Since(start) > o.budget {
			break
		}
		name, err := killAgain(ctx, root, tmp, m, killers[m.String()], o.limit)
		if errors.Is(err, errCompile) && ctx.Err() == nil {
			gone++ // its surroundings have changed
			continue
		}
		if err != nil {
			return err
		}
		if name == "" {
			survivors = append(survivors, m.String())
			fmt.Printf("survived  %s\n", m)
			continue
		}
		killed++
		fmt.Printf("killed    %s  %s\n", m, name)
	}
	fmt.Printf("%d mutants of %s repeated in %s: %d killed, %d survived; %d of the list are no longer in the sources\n",
		killed+len(survivors), o.list, time.Since(start).Round(time.Second), killed, len(survivors), gone)
	switch {
	case len(survivors) > 0:
		return fmt.Errorf("%d mutants that the tests killed survive now: %s", len(survivors), strings.Join(survivors, "; "))
	case killed == 0:
		return fmt.Errorf("no mutant of %s is in the sources: draw a new list with make mutate", o.list)
	}
	return nil
}

// killAgain runs the test that killed the mutant, and all tests of the
// mutant's test packages where that one is gone or passes. All tests take
// longer than limit where the machine is slow, and a test that stands at its
// limit counts as one that kills.
func killAgain(ctx context.Context, root, tmp string, m Mutant, killer string, limit time.Duration) (string, error) {
	for _, tests := range []string{killer, ".*"} {
		for _, dir := range m.testPackages(root) {
			s, err := compileMutant(ctx, root, tmp, m, dir)
			if err != nil {
				return "", err
			}
			if name := s.run(ctx, []string{tests}, limit); name != "" {
				return name, nil
			}
		}
		limit *= 10
	}
	return "", ctx.Err()
}

// killedLines returns the lines of the document that list a killed mutant, in columns.
func killedLines(text string) (lines [][]string) {
	for l := range strings.Lines(text) {
		var columns []string
		for c := range strings.SplitSeq(strings.TrimSpace(l), "  ") {
			if c = strings.TrimSpace(c); c != "" {
				columns = append(columns, c)
			}
		}
		if len(columns) == 5 && columns[0] == "killed" {
			lines = append(lines, columns[1:])
		}
	}
	return lines
}

// find returns the mutants of the lines that are in the sources, and the number of those that are not.
func find(root string, lines [][]string) (found []listed, gone int, err error) {
	byName := make(map[string]Mutant)
	read := make(map[string]bool)
	for _, l := range lines {
		dir := filepath.ToSlash(filepath.Dir(l[0]))
		if !read[dir] {
			read[dir] = true
			of, err := sites(root, dir)
			if err != nil && !errors.Is(err, os.ErrNotExist) { // a package that was moved has no mutants
				return nil, 0, err
			}
			for _, m := range of {
				byName[m.String()] = m
			}
		}
		if m, ok := byName[strings.Join(l[:3], "  ")]; ok {
			found = append(found, listed{m, l[3]})
		} else {
			gone++
		}
	}
	return found, gone, nil
}
