package plugin

import (
	"log/slog"
	"net"
	"os"
)

// credListener accepts connections of root and of the user of this process. The mode of the socket already excludes others,
// except for the moment before chmod.
type credListener struct {
	net.Listener
	log *slog.Logger
}

func (l *credListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := peerOf(conn)
		if err == nil && (peer.uid == 0 || int(peer.uid) == os.Geteuid()) {
			return callerConn{conn, peer}, nil
		}
		l.log.Warn("closed a connection of another user to the control socket", "uid", peer.uid, "error", err)
		conn.Close()
	}
}

// caller is the process at the other end of a connection, as the kernel recorded it at connect(2). Calls see it as the
// address of the peer, which a unix socket does not have.
type caller struct {
	net.Addr
	uid uint32
	pid int32
}

type callerConn struct {
	net.Conn
	peer caller
}

func (c callerConn) RemoteAddr() net.Addr { return c.peer }
