package ibv

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// UMEM is memory in which firmware puts the queues of a [DevX]: their rings and doorbell records.
type UMEM struct {
	object
	dx  *DevX
	id  uint32
	mem []byte
}

// AllocUMEM maps at least length bytes of zeroed memory and registers them. Close unmaps them.
func (d *DevX) AllocUMEM(length int) (*UMEM, error) {
	if length < 1 {
		return nil, fmt.Errorf("%s: allocating a umem of %d bytes: %w", d.device, length, syscall.EINVAL)
	}
	page := os.Getpagesize()
	length = (length + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, length, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_SHARED) // shared: see PD.AllocMR
	if err != nil {
		return nil, fmt.Errorf("%s: mapping %d bytes for a umem: %w", d.device, length, err)
	}

	u := &UMEM{dx: d, mem: mem}
	err = u.init("umem", d.device, func() (handle, error) {
		h, id, errno := d.m.regUMEM(d.h, mem, AccessLocalWrite)
		u.id = id
		return h, explainRegMR(d.ctx.err("mlx5dv_devx_umem_reg", errno), errno, length, AccessLocalWrite)
	}, &d.object)
	if err != nil {
		return nil, errors.Join(err, syscall.Munmap(mem))
	}
	return u, nil
}

// ID returns the firmware's number of the memory.
func (u *UMEM) ID() uint32 { return u.id }

// Bytes returns the memory, or nil if the umem is closed. Do not use the slice after Close.
func (u *UMEM) Bytes() []byte {
	if u.use() != nil {
		return nil
	}
	defer u.done()
	return u.mem
}

// Close deregisters and unmaps the memory. Queues hold it: close them first. EBUSY leaves the umem open. After any other
// refusal the umem is closed, but the device may still write to the memory, which stays mapped until the Context is closed.
func (u *UMEM) Close() error {
	return u.close(func(h handle) error {
		if err := u.dx.ctx.err("mlx5dv_devx_umem_dereg", u.dx.m.deregUMEM(h)); err != nil {
			if !errors.Is(err, syscall.EBUSY) { // EBUSY leaves the umem open, and its memory mapped
				u.dx.ctx.keepMapped(u.mem)
			}
			return err
		}
		return syscall.Munmap(u.mem)
	})
}

// UAR is a page of the device with a doorbell register, by which a program tells it of new requests.
type UAR struct {
	object
	dx       *DevX
	page     uint32
	register handle
}

// AllocUAR allocates a UAR that is not cached. The library may give the same page to each caller.
func (d *DevX) AllocUAR() (*UAR, error) {
	u := &UAR{dx: d}
	err := u.init("UAR", d.device, func() (handle, error) {
		h, register, page, errno := d.m.allocUAR(d.h)
		u.register = register
		u.page = page
		return h, d.ctx.err("mlx5dv_devx_alloc_uar", errno)
	}, &d.object)
	if err != nil {
		return nil, err
	}
	return u, nil
}

// Page returns the firmware's number of the page.
func (u *UAR) Page() uint32 { return u.page }

// Close frees the UAR. Queues hold it: close them first.
func (u *UAR) Close() error {
	return u.close(func(h handle) error {
		u.dx.m.freeUAR(h)
		return nil
	})
}

// QueryEQN returns the number of the event queue of a completion vector. A completion queue must name one, also if it
// never sends an event.
func (d *DevX) QueryEQN(vector int) (uint32, error) {
	if err := d.use(); err != nil {
		return 0, err
	}
	defer d.done()
	eqn, errno := d.m.queryEQN(d.h, vector)
	return eqn, d.ctx.err("mlx5dv_devx_query_eqn", errno)
}

// AllocPD makes a protection domain of the second context. Only objects of the same context may use it, as the queue
// pairs made by CreateQP.
func (d *DevX) AllocPD() (*PD, error) {
	p := &PD{ctx: d.ctx}
	err := p.init("protection domain", d.device, func() (handle, error) {
		h, errno := d.ctx.v.allocPD(d.h)
		return h, d.ctx.err("ibv_alloc_pd", errno)
	}, &d.object)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// createObject makes an object of firmware by a command, and decodes its output.
func (d *DevX) createObject(name string, in []byte, out prmStruct) (handle, error) {
	answer := make([]byte, prmOutSize)
	h, errno := d.m.createObject(d.h, in, answer)
	if err := d.commandErr("mlx5dv_devx_obj_create ("+name+")", errno, answer); err != nil {
		if h != 0 {
			d.m.destroyObject(h) // libmlx5 made its own object, although firmware refused
		}
		return 0, err
	}
	decodePRM(answer, out)
	return h, nil
}
