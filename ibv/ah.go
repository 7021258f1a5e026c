package ibv

// AHAttr is struct ibv_ah_attr: the path to a peer. On Ethernet IsGlobal must be set, and DLID is
// ignored.
type AHAttr struct {
	GRH         GlobalRoute // used with IsGlobal
	DLID        uint16
	SL          uint8
	SrcPathBits uint8
	StaticRate  uint8 // enum ibv_rate; 0: the port's
	IsGlobal    bool
	PortNum     uint8 // of this device, from 1
}

// GlobalRoute is struct ibv_global_route: the fields of the global route header, or of the IP header on
// Ethernet.
type GlobalRoute struct {
	DGID         GID    // of the peer
	FlowLabel    uint32 // 20 bits
	SGIDIndex    uint8  // in the GID table of the port
	HopLimit     uint8
	TrafficClass uint8
}

// AH is an address handle: the path to a peer, for datagrams.
type AH struct {
	object
	pd *PD
}

// CreateAH makes an address handle. Only queue pairs of the same domain can send to it.
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

// Close destroys the handle. First wait for the completions of all requests to it: the manual promises
// their destination only as long as the handle exists.
func (h *AH) Close() error {
	return h.close(func(ah handle) error {
		return h.pd.ctx.err("ibv_destroy_ah", h.pd.ctx.v.destroyAH(ah))
	})
}
