package ibv

import (
	"errors"
	"fmt"
	"syscall"
)

// AccessFlags is enum ibv_access_flags.
type AccessFlags uint32

// The kinds of access to a memory region, and of a peer through a queue pair. Local reads are always
// allowed.
const (
	AccessLocalWrite AccessFlags = 1 << iota
	AccessRemoteWrite
	AccessRemoteRead
	AccessRemoteAtomic
)

// MR is a memory region: the device may read and write its memory at any time. It must never be part of
// the Go heap, which the runtime may reuse for something else. AllocMR maps memory for the region; RegMR
// takes a mapping of the caller.
type MR struct {
	object
	pd    *PD
	reg   region
	mem   []byte
	owned bool // Close unmaps mem
}

// AllocMR maps length bytes of zeroed memory and registers them. Close unmaps them.
func (p *PD) AllocMR(length int, access AccessFlags) (*MR, error) {
	if length < 1 {
		return nil, fmt.Errorf("%s: allocating a memory region of %d bytes: %w", p.device, length, syscall.EINVAL)
	}

	// Use a shared mapping. A fork would copy a private one, and the device would know only the pages of
	// one process.
	mem, err := syscall.Mmap(-1, 0, length, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: mapping %d bytes for a memory region: %w", p.device, length, err)
	}

	m, err := p.register(mem, access, true)
	if err != nil {
		return nil, errors.Join(err, syscall.Munmap(mem))
	}
	return m, nil
}

// RegMR registers mem, which must be part of a mapping, not of the Go heap. Keep it mapped until the
// region is closed, or until the [Context] is closed if closing the region fails.
func (p *PD) RegMR(mem []byte, access AccessFlags) (*MR, error) {
	return p.register(mem, access, false)
}

func (p *PD) register(mem []byte, access AccessFlags, owned bool) (*MR, error) {
	m := &MR{pd: p, mem: mem, owned: owned}
	err := m.init("memory region", p.device, func() (handle, error) {
		if len(mem) == 0 {
			return 0, p.ctx.err("ibv_reg_mr", syscall.EINVAL)
		}
		reg, errno := p.ctx.v.regMR(p.h, mem, access)
		m.reg = reg
		return reg.mr, explainRegMR(p.ctx.err("ibv_reg_mr", errno), errno, len(mem), access)
	}, &p.object)
	if err != nil {
		return nil, err
	}
	p.regionByLKey.Store(m.reg.lkey, m)
	return m, nil
}

// explainRegMR adds the meaning of the errno according to ibv_reg_mr(3) and the kernel.
func explainRegMR(err error, errno syscall.Errno, length int, access AccessFlags) error {
	switch {
	case errno == syscall.EINVAL && access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && access&AccessLocalWrite == 0:
		return fmt.Errorf("%w: memory that a peer writes must have local write access too", err)
	case errno == syscall.ENOMEM:
		return fmt.Errorf("%w: %d bytes are to be locked: raise RLIMIT_MEMLOCK (LimitMEMLOCK= of a systemd unit)", err, length)
	}
	return err
}

// Bytes returns the memory, or nil if the region is closed. Do not use the slice after Close, which unmaps
// the memory of AllocMR. The device may write at any moment. Only a completion tells that it is done.
func (m *MR) Bytes() []byte {
	if m.use() != nil {
		return nil
	}
	defer m.done()

	return m.mem
}

// Addr returns the address of the memory, for SGE.Addr here and SendWR.RemoteAddr at the peer.
func (m *MR) Addr() uint64 { return m.reg.addr }

// LKey returns the key of the region for local work requests.
func (m *MR) LKey() uint32 { return m.reg.lkey }

// RKey returns the key of the region for a peer's work requests.
func (m *MR) RKey() uint32 { return m.reg.rkey }

// Close deregisters the memory, and unmaps it if AllocMR has mapped it. First wait for the completions of
// all requests that use the region. EBUSY leaves the region open. After any other refusal the region is closed,
// but the device may still write to the memory, which stays mapped until the device is closed.
func (m *MR) Close() error {
	return m.close(func(h handle) error {
		if err := m.pd.ctx.err("ibv_dereg_mr", m.pd.ctx.v.deregMR(h)); err != nil {
			if m.owned && !errors.Is(err, syscall.EBUSY) { // EBUSY leaves the region open
				m.pd.ctx.keepMapped(m.mem)
			}
			return err
		}

		m.pd.regionByLKey.CompareAndDelete(m.reg.lkey, m) // a new region may have got the key already
		if m.owned {
			return syscall.Munmap(m.mem)
		}
		return nil
	})
}
