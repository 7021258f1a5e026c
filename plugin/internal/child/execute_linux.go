package child

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// execute makes the child execute the checked descriptor, if any. The descriptor stays open in the child: the
// interpreter of a script opens it by this name.
func (p *Process) execute() {
	if p.file == nil {
		return
	}
	p.cmd.Path = "/proc/self/fd/" + strconv.Itoa(3+len(p.cmd.ExtraFiles))
	p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, p.file)
}

// NameProcess gives this process the name of its file. The kernel names the process of an executed
// descriptor by the descriptor's number.
func NameProcess() {
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
}

// Conceal makes this process not dumpable: another process of its user cannot read its memory or its descriptors, or
// trace it, without CAP_SYS_PTRACE, and a crash leaves no core. A program that it executes is dumpable again.
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("making the process not dumpable: %w", err)
	}
	return nil
}
