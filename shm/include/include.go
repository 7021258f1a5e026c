// Package include carries the reader of the mirror for C and C++, the header
// flowtally.h, inside Go programs: tests and the bench compile it where they
// run. A C program needs nothing of this package, only the file.
package include

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed flowtally.h
var header []byte

// Write writes flowtally.h into dir, for a compiler's -I.
func Write(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "flowtally.h"), header, 0o644); err != nil {
		return fmt.Errorf("writing flowtally.h: %w", err)
	}
	return nil
}
