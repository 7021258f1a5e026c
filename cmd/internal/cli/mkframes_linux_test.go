package cli

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/cmd/internal/explain"
)

// sendFrames is the command "sendframes INTERFACE N PACKET": it sends N frames of a packet on an interface.
func sendFrames() {
	if err := sendFramesOn(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func sendFramesOn(ifname, count, packet string) error {
	var n int
	if _, err := fmt.Sscan(count, &n); err != nil {
		return err
	}

	m, err := parseMatch(packet)
	if err != nil {
		return err
	}
	frame, err := explain.Build(m)
	if err != nil {
		return err
	}

	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)

	for range n {
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifi.Index}); err != nil {
			return fmt.Errorf("sending on %s: %w", ifname, err)
		}
	}
	return nil
}
