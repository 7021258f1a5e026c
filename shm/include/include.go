// Package include carries the mirror's reader for C and C++, the headers flowtally*.h, inside Go programs: tests and the
// bench compile them where they run. A C program needs only the headers.
package include

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed flowtally*.h
var header embed.FS

// Write writes the headers into dir, for a compiler's -I.
func Write(dir string) error {
	list, err := header.ReadDir(".")
	if err != nil {
		return fmt.Errorf("listing the headers: %w", err)
	}
	for _, e := range list {
		text, err := header.ReadFile(e.Name())
		if err != nil {
			return fmt.Errorf("reading %s: %w", e.Name(), err)
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), text, 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", e.Name(), err)
		}
	}
	return nil
}
