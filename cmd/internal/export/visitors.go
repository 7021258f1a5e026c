package export

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// visitors bounds the connections of a server. Where all are taken, the address with the most of them loses its oldest
// one: clients of one address, which connect and rest or read nothing, keep no other address from its scrape. A client
// whose connection rested connects again.
type visitors struct {
	most int

	mu     sync.Mutex
	came   uint64
	byConn map[net.Conn]visit
	each   map[netip.Addr]int // connections of an address
}

// visit is one connection.
type visit struct {
	from netip.Addr
	turn uint64 // when it came
}

func newVisitors(most int) *visitors {
	return &visitors{most: most, byConn: make(map[net.Conn]visit), each: make(map[netip.Addr]int)}
}

// note is a server's ConnState.
func (v *visitors) note(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		v.come(c)
	case http.StateClosed, http.StateHijacked:
		v.mu.Lock()
		defer v.mu.Unlock()
		v.leave(c)
	}
}

func (v *visitors) come(c net.Conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.came++
	from := addressOf(c)
	v.byConn[c] = visit{from: from, turn: v.came}
	v.each[from]++

	for len(v.byConn) > v.most {
		oldest := v.oldestOfMost()
		v.leave(oldest)
		cut(oldest)
	}
}

// oldestOfMost returns the oldest connection of the address that has the most. It is called with mu held.
func (v *visitors) oldestOfMost() (oldest net.Conn) {
	var at visit
	for c, o := range v.byConn {
		more := v.each[o.from] - v.each[at.from]
		if oldest == nil || more > 0 || more == 0 && o.turn < at.turn {
			oldest, at = c, o
		}
	}
	return oldest
}

// leave forgets a connection. It is called with mu held.
func (v *visitors) leave(c net.Conn) {
	o, known := v.byConn[c]
	if !known {
		return
	}
	delete(v.byConn, c)
	if v.each[o.from]--; v.each[o.from] == 0 {
		delete(v.each, o.from)
	}
}

// cut ends a connection without a word: TLS would wait until its client reads that it ends.
func cut(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// addressOf returns the address of a client; of IPv6 the network, in which one host may have any address.
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
