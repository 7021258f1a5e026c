package lab

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// runNetns is where iproute2 and others look for named namespaces.
const runNetns = "/run/netns"

// Unique returns prefix and a random suffix: a name that no other test, run
// at the same time, uses. With a prefix of at most 7 bytes it names an interface.
func Unique(prefix string) string {
	var b [4]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

// Netns is a network namespace that is held open.
type Netns struct {
	name string // under runNetns; "" when anonymous
	fd   netns.NsHandle
	nl   *netlink.Handle // sockets that live in the namespace

	once sync.Once
	err  error // of Close
}

// NewNetns makes a namespace with its loopback interface up and silent: no
// autoconfigured address, no router solicitation. A name makes it visible in
// /run/netns and to `ip netns`; without, it vanishes with its last user.
func NewNetns(name string) (*Netns, error) {
	n := &Netns{name: name, fd: -1}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unsharing the network namespace: %w", err)
		}
		var err error
		if n.fd, err = netns.Get(); err != nil {
			return fmt.Errorf("opening the new network namespace: %w", err)
		}
		if err := quiet(); err != nil {
			return err
		}
		return n.publish()
	})
	if err == nil {
		err = n.open()
	}
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("making network namespace %q: %w", name, err)
	}
	return n, nil
}

// CurrentNetns holds the namespace of the calling thread open.
func CurrentNetns() (*Netns, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("opening the current network namespace: %w", err)
	}
	n := &Netns{fd: fd}
	if err := n.open(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// open makes the netlink sockets and brings loopback up.
func (n *Netns) open() error {
	var err error
	if n.nl, err = netlink.NewHandleAt(n.fd, unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	lo, err := n.nl.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("looking up lo: %w", err)
	}
	if err := n.nl.LinkSetUp(lo); err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	return nil
}

// publish binds the namespace of this thread to its name.
func (n *Netns) publish() error {
	if n.name == "" {
		return nil
	}
	if err := os.MkdirAll(runNetns, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(n.Path(), os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		n.name = "" // another process made it: Close must leave it alone
		return err
	}
	f.Close()
	if err := unix.Mount("/proc/thread-self/ns/net", n.Path(), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s: %w", n.Path(), err)
	}
	return nil
}

// quiet keeps the kernel from sending packets of its own in the namespace of
// this thread. IPv6 is off until an address is added (see End.AddAddr).
func quiet() error {
	for _, conf := range []string{"all", "default"} {
		for _, set := range [][2]string{
			{"disable_ipv6", "1"}, {"accept_dad", "0"}, {"dad_transmits", "0"},
			{"router_solicitations", "0"}, {"accept_ra", "0"}, {"addr_gen_mode", "1"},
		} {
			path := filepath.Join("/proc/sys/net/ipv6/conf", conf, set[0])
			err := os.WriteFile(path, []byte(set[1]), 0)
			if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
				return fmt.Errorf("writing %s: %w", path, err)
			}
		}
	}
	return nil
}

// Path that setns(2), nsenter(1) and other processes can open: the name in
// /run/netns, or this process's descriptor.
func (n *Netns) Path() string {
	if n.name != "" {
		return filepath.Join(runNetns, n.name)
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(n.fd))
}

// Do runs fn in the namespace, on a thread of its own, and waits for it.
// Sockets that fn opens stay in the namespace; programs that it starts run in
// it; goroutines that it starts do not.
func (n *Netns) Do(fn func() error) error {
	return onThread(func() error {
		if err := netns.Set(n.fd); err != nil {
			return fmt.Errorf("entering network namespace %s: %w", n.Path(), err)
		}
		return fn()
	})
}

// Close gives the namespace up; it ends when nothing else uses it. Idempotent.
func (n *Netns) Close() error {
	n.once.Do(func() {
		if n.nl != nil {
			n.nl.Close()
		}
		var errs []error
		if n.name != "" {
			if err := unix.Unmount(n.Path(), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
				errs = append(errs, fmt.Errorf("unmounting %s: %w", n.Path(), err))
			}
			if err := os.Remove(n.Path()); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		if n.fd.IsOpen() {
			errs = append(errs, n.fd.Close())
		}
		n.err = errors.Join(errs...)
	})
	return n.err
}

// onThread runs fn on a locked thread and moves the thread back to the
// namespace that it came from. Where that fails the thread stays locked, so
// that the runtime ends it with the goroutine in place of reusing it.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("opening the current network namespace: %w", err)
			return
		}
		defer home.Close()
		ended := false
		defer func() {
			if err := netns.Set(home); err == nil {
				runtime.UnlockOSThread()
			}
			if !ended { // fn called runtime.Goexit, as t.FailNow does
				done <- errors.New("function ended its goroutine")
			}
		}()
		err = fn()
		ended = true
		done <- err
	}()
	return <-done
}
