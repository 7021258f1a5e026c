package export

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// visitors limits the connections of a server, and shares them fairly among addresses. When a connection exceeds the
// limit, the address with the most connections loses its oldest one. So an attacker who opens connections and leaves
// them idle only pushes out its own. An honest client losing an idle connection simply connects again.
type visitors struct {
	most int

	mu             sync.Mutex
	came           uint64 // connections so far
	visitByConn    map[net.Conn]visit
	countByAddress map[netip.Addr]int // of connections
}

// visit is one connection.
type visit struct {
	from netip.Addr
	turn uint64 // the lower, the older
}

func newVisitors(most int) *visitors {
	return &visitors{most: most, visitByConn: make(map[net.Conn]visit), countByAddress: make(map[netip.Addr]int)}
}

// note is the ConnState of an http.Server.
func (v *visitors) note(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		v.add(c)
	case http.StateClosed, http.StateHijacked:
		v.mu.Lock()
		defer v.mu.Unlock()
		v.forget(c)
	}
}

// add counts a new connection, and closes the oldest ones of the busiest address if there are too many now.
func (v *visitors) add(c net.Conn) {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.came++
	from := addressOf(c)
	v.visitByConn[c] = visit{from: from, turn: v.came}
	v.countByAddress[from]++

	for len(v.visitByConn) > v.most {
		oldest := v.oldestOfMost()
		v.forget(oldest)
		cut(oldest)
	}
}

// oldestOfMost returns the oldest connection of the address with the most connections. Callers must hold mu.
func (v *visitors) oldestOfMost() (oldest net.Conn) {
	var found visit // of oldest
	for c, o := range v.visitByConn {
		more := v.countByAddress[o.from] - v.countByAddress[found.from]
		if oldest == nil || more > 0 || more == 0 && o.turn < found.turn {
			oldest, found = c, o
		}
	}
	return oldest
}

// forget stops counting a connection. add may already have forgotten it. Callers must hold mu.
func (v *visitors) forget(c net.Conn) {
	o, counted := v.visitByConn[c]
	if !counted {
		return
	}
	delete(v.visitByConn, c)
	if v.countByAddress[o.from]--; v.countByAddress[o.from] == 0 {
		delete(v.countByAddress, o.from)
	}
}

// cut closes a connection at once. Closing a tls.Conn sends an alert first, and so waits for a client that does not read.
// We close the connection below it instead.
func cut(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// addressOf returns the address of a client. For IPv6 it returns the /64 network, because a single host can use every
// address in it.
func addressOf(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	a := at.Addr().Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			a = p.Addr()
		}
	}
	return a
}
