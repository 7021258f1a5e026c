package export

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// visitors bounds the connections of a server. When one comes that is too many, the address with the most connections
// loses its oldest one. So the clients of one address, which connect and send or read nothing, keep no other address
// from its scrape. An honest client that loses an idle connection connects again.
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
	turn uint64 // of came
}

func newVisitors(most int) *visitors {
	return &visitors{most: most, visitByConn: make(map[net.Conn]visit), countByAddress: make(map[netip.Addr]int)}
}

// note is a server's ConnState.
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

// add counts a connection, and ends others if there are too many now.
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

// oldestOfMost returns the oldest connection of the address that has the most. It is called with mu held.
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

// forget counts a connection no more. add may have forgotten it already. It is called with mu held.
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

// cut ends a connection at once. To close one of TLS would wait until the client reads that it ends.
func cut(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// addressOf returns the address of a client. Of an IPv6 address it returns the network of 64 bits, because one host may
// have every address in it.
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
