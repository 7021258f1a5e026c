package plugin

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerCredentials returns an error if the system does not report the user of a peer.
func peerCredentials() error { return nil }

// peerUID returns the user of the peer, as the kernel recorded it at connect(2).
func peerUID(conn net.Conn) (uint32, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("reading the peer's user: %T is no unix socket", conn)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("reading the peer's user: %w", err)
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(cerr, err); err != nil {
		return 0, fmt.Errorf("reading the peer's user: %w", err)
	}
	return cred.Uid, nil
}
