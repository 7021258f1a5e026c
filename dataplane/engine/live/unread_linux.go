package live

import (
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// mostUnread bounds the unreceived messages of one user.
	mostUnread = 64
	// mostUnreadOfAll bounds those of all users, because each costs the server an open connection.
	mostUnreadOfAll = 512
)

// Unread bounds the messages with a descriptor that clients have not received yet. The kernel counts each of them against the
// RLIMIT_NOFILE of the server's user until the client receives it or ends, even if the server has closed the connection
// (unix_inflight, net/unix/garbage.c). Without a bound, the clients of one user could keep the server from sending descriptors to
// any other user. The zero value is ready to use.
type Unread struct {
	mu     sync.Mutex
	closed bool
	byUser map[uint32][]int // connections, each with one message
	n      int              // connections of all users
}

// Room reports whether the server may send another message to this user.
func (u *Unread) Room(uid uint32) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sweep()
	return !u.closed && u.n < mostUnreadOfAll && len(u.byUser[uid]) < mostUnread
}

// Keep shuts a connection down, and counts the message on it until the client receives it. Unread owns conn from then on.
func (u *Unread) Keep(uid uint32, conn int) {
	_ = unix.Shutdown(conn, unix.SHUT_RDWR)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		_ = unix.Close(conn)
		return
	}
	if u.byUser == nil {
		u.byUser = make(map[uint32][]int)
	}
	u.byUser[uid] = append(u.byUser[uid], conn)
	u.n++
	u.sweep()
}

// sweep closes the connections of clients that have received the message or ended. SIOCOUTQ returns the bytes not received yet.
// The caller holds mu.
func (u *Unread) sweep() {
	for uid, conns := range u.byUser {
		kept := conns[:0]
		for _, conn := range conns {
			if n, err := unix.IoctlGetInt(conn, unix.SIOCOUTQ); err == nil && n > 0 {
				kept = append(kept, conn)
				continue
			}
			_ = unix.Close(conn)
			u.n--
		}
		u.byUser[uid] = kept
		if len(kept) == 0 {
			delete(u.byUser, uid)
		}
	}
}

// Close closes all connections. Clients can still receive what was sent. Idempotent.
func (u *Unread) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for _, conns := range u.byUser {
		for _, conn := range conns {
			_ = unix.Close(conn)
		}
	}
	u.byUser = nil
	u.n = 0
}
