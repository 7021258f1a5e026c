package toprows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/bench"
)

// patience bounds the wait for the first screen.
const patience = time.Minute

// start starts a program on a terminal of its own, of width x height cells, and returns its process id when the first
// screen is drawn.
func start(open *bench.Closers, cmd *exec.Cmd, width, height uint16) (int, error) {
	master, slave, err := openTerminal(width, height)
	if err != nil {
		return 0, err
	}
	defer slave.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	name := filepath.Base(cmd.Path) + " " + cmd.Args[1]
	if err := cmd.Start(); err != nil {
		return 0, errors.Join(fmt.Errorf("starting %s: %w", name, err), master.Close())
	}
	drawn, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		awaitText(master, firstText, drawn)
		_, _ = io.Copy(io.Discard, master)
	}()
	go func() { ended <- cmd.Wait() }()
	open.Add(func() error {
		err := cmd.Process.Kill()
		<-ended
		return errors.Join(err, master.Close())
	})
	select {
	case <-drawn:
		return cmd.Process.Pid, nil
	case err := <-ended:
		ended <- err
		return 0, fmt.Errorf("%s ended before its first screen: %w", name, err)
	case <-time.After(patience):
		return 0, fmt.Errorf("%w: %s drew no screen within %v", bench.ErrDisturbed, name, patience)
	}
}

// awaitText reads until it has read a text, and closes found.
func awaitText(r io.Reader, text string, found chan struct{}) {
	var seen []byte
	for buf := make([]byte, 4096); ; {
		n, err := r.Read(buf)
		if seen = append(seen, buf[:n]...); bytes.Contains(seen, []byte(text)) {
			close(found)
			return
		}
		if err != nil {
			return
		}
	}
}

// openTerminal makes a pseudoterminal of that size (pts(4)).
func openTerminal(width, height uint16) (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a terminal: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("making a terminal: %w", err), master.Close())
		}
	}()
	fd := int(master.Fd())
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	if err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}); err != nil {
		return nil, nil, err
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	return master, slave, err
}
