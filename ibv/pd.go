package ibv

import "sync"

// PD is a protection domain. Its queue pairs can only use memory regions and address handles of the same
// domain.
type PD struct {
	object
	ctx *Context

	regionByLKey sync.Map // uint32 to *MR: the registered regions
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	p := &PD{ctx: c}
	err := p.init("protection domain", c.device, func() (handle, error) {
		h, errno := c.v.allocPD(c.h)
		return h, c.err("ibv_alloc_pd", errno)
	}, &c.object)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Close frees the domain, once its queue pairs, memory regions and address handles are closed.
func (p *PD) Close() error {
	return p.close(func(h handle) error {
		return p.ctx.err("ibv_dealloc_pd", p.ctx.v.deallocPD(h))
	})
}
