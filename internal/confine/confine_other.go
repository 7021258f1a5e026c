//go:build !linux

package confine

import "fmt"

// Process returns ErrUnsupported: Landlock is Linux's.
func Process(Files) error { return fmt.Errorf("%w: this system has no Landlock", ErrUnsupported) }

// onBPFFS returns false: bpffs is Linux's.
func onBPFFS(string) bool { return false }
