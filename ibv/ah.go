package ibv

import "net/netip"

// GID is union ibv_gid: the address of a port, in the order of the wire. On Ethernet it is an
// IPv6 address, or an IPv4 address in the form ::ffff:a.b.c.d.
type GID [16]byte

// String is the GID as an IPv6 address.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// QueryGID reads an entry of a port's GID table. PortAttr.GIDTblLen is the number of entries. An
// entry without an address is zero.
func (c *Context) QueryGID(port uint8, index int) (GID, error) {
	var g GID
	if err := c.use(); err != nil {
		return g, err
	}
	defer c.done()
	return g, c.err("ibv_query_gid", c.v.queryGID(c.h, port, index, &g))
}

// AH is an address handle: the way to a peer, for the datagrams of a UD queue pair.
type AH struct {
	object
	pd *PD
}

// CreateAH makes an address handle. Queue pairs of the same domain can send to it.
func (p *PD) CreateAH(a AHAttr) (*AH, error) {
	h := &AH{pd: p}
	err := h.init("address handle", p.device, func() (handle, error) {
		ah, errno := p.ctx.v.createAH(p.h, &a)
		return ah, p.ctx.err("ibv_create_ah", errno)
	}, &p.object)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Close destroys the handle. Wait for the completions of the requests that name it first: until
// then the manual does not promise their destination.
func (h *AH) Close() error {
	return h.close(func(ah handle) error {
		return h.pd.ctx.err("ibv_destroy_ah", h.pd.ctx.v.destroyAH(ah))
	})
}
