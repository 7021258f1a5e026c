//go:build unix

package child

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup keeps the terminal's Ctrl-C, which goes to the whole foreground
// process group, from the plugin: its host closes it in order.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// killGroup kills a process that is not reaped yet, and all of its group.
func killGroup(p *os.Process) error {
	if err := syscall.Kill(-p.Pid, syscall.SIGKILL); err == nil || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return p.Kill()
}
