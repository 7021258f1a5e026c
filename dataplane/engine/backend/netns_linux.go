package backend

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Netns is the network namespace in which an instance was started. The kernel looks up the names of interfaces in the
// namespace of the calling thread, and a program that embeds the engine may have threads in several namespaces.
type Netns struct{ file *os.File }

const threadNetns = "/proc/thread-self/ns/net"

// CurrentNetns returns the namespace of the calling thread. The caller must close it.
func CurrentNetns() (*Netns, error) {
	f, err := os.Open(threadNetns)
	if err != nil {
		return nil, fmt.Errorf("opening the network namespace: %w", err)
	}
	return &Netns{f}, nil
}

// Do runs fn in the namespace and returns its error, or why the namespace could not be entered.
//
// It uses a thread of its own. If the thread cannot return to its namespace, it stays locked, so that the runtime ends it
// with the goroutine. If it is in the namespace already, Do does not enter it, because that takes a privilege.
func (n *Netns) Do(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		back, err := n.enter()
		if err == nil {
			err = fn()
		}
		if back() {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// enter moves the locked thread to the namespace, if necessary. back moves it back and reports whether that has worked.
func (n *Netns) enter() (back func() bool, err error) {
	stay := func() bool { return true }
	home, err := os.Open(threadNetns)
	if err != nil {
		return stay, fmt.Errorf("opening the network namespace: %w", err)
	}
	if sameFile(home, n.file) {
		home.Close()
		return stay, nil
	}
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		home.Close()
		return stay, fmt.Errorf("entering the network namespace of the instance: %w", err)
	}
	return func() bool {
		defer home.Close()
		return unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil
	}, nil
}

func sameFile(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// Close closes the file of the namespace. The namespace itself may live on.
func (n *Netns) Close() error { return n.file.Close() }
