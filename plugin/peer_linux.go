package plugin

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerCredentials says whether peers can be asked who they are.
func peerCredentials() error { return nil }

// peerUID is the user that connected, as the kernel noted it at connect(2).
func peerUID(conn net.Conn) (uint32, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("asking who connected: %T is no unix socket", conn)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("asking who connected: %w", err)
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(cerr, err); err != nil {
		return 0, fmt.Errorf("asking who connected: %w", err)
	}
	return cred.Uid, nil
}
