package plugin

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerCredentials returns an error on systems where peerOf cannot work.
func peerCredentials() error { return nil }

// peerOf returns the user and the process at the other end of a connection.
func peerOf(conn net.Conn) (caller, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return caller{}, fmt.Errorf("reading user and process of the caller: %T is no unix socket", conn)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return caller{}, fmt.Errorf("reading user and process of the caller on the control socket: %w", err)
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(cerr, err); err != nil {
		return caller{}, fmt.Errorf("reading user and process of the caller on the control socket: %w", err)
	}
	return caller{conn.RemoteAddr(), cred.Uid, cred.Pid}, nil
}
