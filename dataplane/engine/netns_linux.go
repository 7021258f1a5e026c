package engine

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// netns is the network namespace that an instance was started in. Interfaces
// are looked up by name in the namespace of the thread, and a program that embeds the
// engine may have threads in several.
type netns struct{ file *os.File }

const threadNetns = "/proc/thread-self/ns/net"

// currentNetns is that of the calling thread.
func currentNetns() (*netns, error) {
	f, err := os.Open(threadNetns)
	if err != nil {
		return nil, fmt.Errorf("opening the network namespace: %w", err)
	}
	return &netns{f}, nil
}

// do runs fn in the namespace. Entering it, which asks for a privilege of its
// own, is left out where the thread is there already. A thread that finds no way back ends
// with its goroutine.
func (n *netns) do(fn func() error) error {
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

// enter moves the thread, if it must be; back says whether it is where it was.
func (n *netns) enter() (back func() bool, err error) {
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

func (n *netns) close() error { return n.file.Close() }
