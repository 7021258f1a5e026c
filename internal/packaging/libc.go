package main

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// libcOf returns the oldest release of glibc that has every symbol that the programs import. Programs that
// were built without a C compiler import none.
func libcOf(programs []string) (string, error) {
	newest := []int{2, 17} // the first for 64-bit Arm, newer than the first for amd64
	for _, path := range programs {
		f, err := elf.Open(path)
		if err != nil {
			return "", fmt.Errorf("%s: reading the ELF header: %w", path, err)
		}
		symbols, err := f.ImportedSymbols()
		f.Close()
		if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
			return "", fmt.Errorf("%s: reading the imported symbols: %w", path, err)
		}
		for _, s := range symbols {
			if text, ok := strings.CutPrefix(s.Version, "GLIBC_"); ok {
				if v := numbers(text); slices.CompareFunc(newest, v, cmp.Compare) < 0 {
					newest = v
				}
			}
		}
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(newest), " ", "."), "[]"), nil
}

// numbers are the numbers of a version: 2.34 is {2, 34}. PRIVATE has none.
func numbers(version string) (v []int) {
	for word := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil
		}
		v = append(v, n)
	}
	return v
}
