package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// socket is a listening socket and the lock for its path.
type socket struct {
	*credListener
	info fs.FileInfo // of the socket's file, to notice when another file takes its place
	lock *os.File
}

// socketPeriod is how often Serve checks that the path still leads to the socket.
const socketPeriod = time.Second

// takeLock creates the directory of the socket and takes the lock in it. It tries again if another instance that is ending
// removes the directory between the two steps.
func (c *Control) takeLock() (*os.File, error) {
	for {
		made, err := privateDir(filepath.Dir(c.path))
		if err != nil {
			return nil, err
		}
		c.madeDir = c.madeDir || made
		lock, err := lockFile(c.path + ".lock")
		if !errors.Is(err, fs.ErrNotExist) {
			return lock, err
		}
	}
}

// listen creates the socket. It needs the lock of the path, and takes a new one if held is nil or its file was removed.
func (c *Control) listen(held *os.File) (_ socket, err error) {
	if err := peerCredentials(); err != nil {
		return socket{}, err
	}

	// The lock decides between two processes that start at once. The kernel releases it however its holder dies.
	lock := held
	if held != nil && isNameOf(held.Name(), held.Stat) {
		if _, err := privateDir(filepath.Dir(c.path)); err != nil {
			return socket{}, err
		}
	} else {
		if lock, err = c.takeLock(); err != nil {
			return socket{}, err
		}
		defer func() {
			if err != nil {
				_ = os.Remove(lock.Name())
				lock.Close()
			}
		}()
	}

	if err := removeStale(c.path); err != nil {
		return socket{}, err
	}
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.path, Net: "unix"})
	if err != nil {
		return socket{}, err
	}
	lis.SetUnlinkOnClose(false) // the path may name another socket by then

	// Before chmod the umask decides on the mode. A client that connects in this moment still has to pass Accept.
	err = os.Chmod(c.path, 0o600)
	info, statErr := os.Lstat(c.path)
	if err = errors.Join(err, statErr); err != nil {
		lis.Close()
		return socket{}, err
	}
	return socket{
		credListener: &credListener{lis, c.log},
		info:         info,
		lock:         lock,
	}, nil
}

// removeStale removes a socket that no process listens on. The caller holds the lock, so a listening process must belong to
// another program.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w: there is a file that is no socket: move it away, or name another path", dataplane.ErrInvalid)
	}

	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return fmt.Errorf("%w: a process that is not of flowtally listens there: name another path", dataplane.ErrInUse)
	} else if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("checking for a listener: %w", err)
	}
	return os.Remove(path)
}

// hasName reports whether the path still leads to the socket.
func (s socket) hasName() bool {
	return isNameOf(s.Addr().String(), func() (fs.FileInfo, error) { return s.info, nil })
}

// isNameOf reports whether the path leads to the file that stat describes.
func isNameOf(path string, stat func() (fs.FileInfo, error)) bool {
	atPath, err := os.Lstat(path)
	if err != nil {
		return false
	}
	info, err := stat()
	return err == nil && os.SameFile(atPath, info)
}

// remake replaces the socket if somebody has removed its file. Accepted connections stay open.
func (c *Control) remake() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.socket.hasName() {
		return nil
	}

	now, err := c.listen(c.socket.lock)
	if err != nil {
		return fmt.Errorf("opening control socket %s again: %w", c.path, err)
	}
	old := c.socket
	c.socket = now
	if old.lock != now.lock {
		old.lock.Close()
	}
	c.log.Warn("the control socket was removed: made again", "socket", c.path)
	return old.Close()
}

// keepName calls remake until ctx ends. It logs an error only when it changes.
func (c *Control) keepName(ctx context.Context) {
	tick := time.NewTicker(socketPeriod)
	defer tick.Stop()
	logged := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		err := c.remake()
		switch {
		case err == nil:
			logged = ""
		case err.Error() != logged:
			logged = err.Error()
			c.log.Error("the control socket is gone", "err", err)
		}
	}
}
