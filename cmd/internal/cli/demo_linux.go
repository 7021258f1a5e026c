package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/trust"
)

// isolate moves the process into a network namespace of its own.
func isolate() error {
	err := lab.Isolate("FLOWTALLY_DEMO_ISOLATED")
	if errors.Is(err, unix.EPERM) {
		return withHint(fmt.Errorf("demo: %w: %w", dataplane.ErrPermission, err), "SUDO")
	}
	return err
}

// withinReach copies a library to a directory of root that the plugin can reach. The plugin runs as root without
// CAP_DAC_OVERRIDE, and a build tree is often below a home directory closed to other users. Its loader reads the copy,
// which nobody can replace in between.
func withinReach(library string) (at string, leave func(), err error) {
	f, why, err := trust.Open(library, func(uid uint32) bool { return uid == 0 || trust.OwnsProgram(uid) })
	if why != "" {
		err = fmt.Errorf("%w: %s", dataplane.ErrPermission, why)
	}
	if err != nil {
		return "", nil, fmt.Errorf("demo: opening the uverbs kernel in software: %w", err)
	}
	defer f.Close()

	in, err := trust.Reopen(f)
	if err != nil {
		return "", nil, fmt.Errorf("demo: opening the uverbs kernel in software: %w", err)
	}
	defer in.Close()

	dir, err := os.MkdirTemp("", "flowtally-demo-")
	if err != nil {
		return "", nil, fmt.Errorf("demo: making room for the uverbs kernel in software: %w", err)
	}
	leave = func() { _ = os.RemoveAll(dir) }
	if at = filepath.Join(dir, filepath.Base(library)); strings.ContainsAny(at, " :") {
		leave()
		return "", nil, fmt.Errorf("demo: making room for the uverbs kernel in software: %s has a blank or a colon, at which the loader divides LD_PRELOAD: set TMPDIR to another directory", dir)
	}
	if err := copyTo(at, in); err != nil {
		leave()
		return "", nil, fmt.Errorf("demo: copying the uverbs kernel in software: %w", err)
	}
	return at, leave, nil
}

// copyTo writes the rest of a file to a new one.
func copyTo(path string, in io.Reader) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
