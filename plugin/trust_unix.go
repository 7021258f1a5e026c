//go:build unix

package plugin

import (
	"fmt"
	"os"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/trust"
)

// openTrusted opens the binary at path, for root. It fails with ErrUntrusted if any user but root and the owner of this
// program could have written the binary or put it there. For other users it returns nil without a check.
func openTrusted(path string) (*os.File, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	f, why, err := trust.Open(path, func(uid uint32) bool { return uid == 0 || trust.OwnsProgram(uid) })
	if why != "" {
		err = &stepError{fmt.Errorf("%w: %s", ErrUntrusted, why), trust.Command(why)}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = executableFile(path, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// trustDir returns an error if any user but root and the user of this process could replace the directory.
func trustDir(dir string) error {
	f, why, err := trust.Open(dir, func(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) })
	switch {
	case err != nil:
		return err
	case why != "":
		return fmt.Errorf("%w: %s; or name a socket elsewhere", dataplane.ErrPermission, why)
	}
	return f.Close()
}
