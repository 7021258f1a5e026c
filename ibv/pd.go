package ibv

import "sync"

// PD is a protection domain: queue pairs are made in it, and may use its memory regions and address
// handles only.
type PD struct {
	object
	ctx *Context

	regions sync.Map // lkey to *MR, of those that are registered
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

// Close frees the domain.
func (p *PD) Close() error {
	return p.close(func(h handle) error {
		return p.ctx.err("ibv_dealloc_pd", p.ctx.v.deallocPD(h))
	})
}
