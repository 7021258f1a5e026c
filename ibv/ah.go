package ibv

// GlobalRoute is struct ibv_global_route.
type GlobalRoute struct {
	DGID                              GID
	FlowLabel                         uint32
	SGIDIndex, HopLimit, TrafficClass uint8
}

// AHAttr is struct ibv_ah_attr: the way to a peer. On Ethernet IsGlobal must be set.
type AHAttr struct {
	GRH                         GlobalRoute
	DLID                        uint16
	SL, SrcPathBits, StaticRate uint8
	IsGlobal                    bool
	PortNum                     uint8
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
