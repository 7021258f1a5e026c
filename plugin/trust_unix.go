//go:build unix

package plugin

import (
	"fmt"
	"os"

	"github.com/flowtally/flowtally/internal/trust"
)

// openTrusted opens, for root, the binary at path, and refuses one that somebody else could have
// written, or put there, than root and the owner of this very program. Anyone else is not root,
// starts what it likes, and gets no descriptor.
func openTrusted(path string) (*os.File, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	f, why, err := trust.Open(path, func(uid uint32) bool { return uid == 0 || trust.OwnsProgram(uid) })
	if why != "" {
		err = fmt.Errorf("%w: %s", ErrUntrusted, why)
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
