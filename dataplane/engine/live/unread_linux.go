package live

import (
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// mostUnread bounds the messages of one user that have not been received.
	mostUnread = 64
	// mostUnreadOfAll bounds the messages of all users: to count one, the server keeps its connection open.
	mostUnreadOfAll = 512
)

// Unread bounds the messages with a descriptor that clients have not received. Each counts against RLIMIT_NOFILE of the
// server's user until its client receives it or ends, even after the server has closed the connection (unix_inflight,
// net/unix/garbage.c). Without a bound, the clients of one user could keep the server from passing a descriptor to any
// other user. The zero value is ready.
type Unread struct {
	mu     sync.Mutex
	closed bool
	byUser map[uint32][]int // connections, each with one message
	n      int              // connections of all users
}

// Room reports whether a user may be sent another message.
func (u *Unread) Room(uid uint32) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sweep()
	return !u.closed && u.n < mostUnreadOfAll && len(u.byUser[uid]) < mostUnread
}

// Keep ends a connection, and counts the message on it until the client receives it. It takes over conn.
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

// sweep closes the connections whose clients have received the message, or have ended. It is called with mu held.
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

// Close closes the connections. A message that was sent can still be received. Idempotent.
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
