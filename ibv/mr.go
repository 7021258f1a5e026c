package ibv

import (
	"errors"
	"fmt"
	"syscall"
)

// AccessFlags is enum ibv_access_flags.
type AccessFlags uint32

// The kinds of access: to a memory region, or of the peer through a queue pair. Local reads are
// always allowed.
const (
	AccessLocalWrite AccessFlags = 1 << iota
	AccessRemoteWrite
	AccessRemoteRead
	AccessRemoteAtomic
)

// MR is a memory region: memory that the device reads and writes while the program runs on. It is
// never part of the Go heap, which the runtime may reuse for something else. AllocMR makes a mapping
// for it; RegMR takes a mapping of the caller's.
type MR struct {
	object
	pd    *PD
	reg   region
	mem   []byte
	owned bool // Close unmaps mem
}

// AllocMR maps length bytes of zeroed memory and registers them. Close gives them back.
func (p *PD) AllocMR(length int, access AccessFlags) (*MR, error) {
	if length < 1 {
		return nil, fmt.Errorf("%s: allocating a memory region of %d bytes: %w", p.device, length, syscall.EINVAL)
	}

	// A private mapping would be copied at a fork, and one side would then have pages that the device
	// does not know.
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

// RegMR registers mem: part of a mapping, not of the Go heap. The caller keeps it mapped until the
// region is closed; after a Close that fails, until the [Context] is.
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

// explainRegMR adds to the errno its meaning in ibv_reg_mr(3) and in the kernel.
func explainRegMR(err error, errno syscall.Errno, length int, access AccessFlags) error {
	switch {
	case errno == syscall.EINVAL && access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && access&AccessLocalWrite == 0:
		return fmt.Errorf("%w: memory that a peer writes must have local write access too", err)
	case errno == syscall.ENOMEM:
		return fmt.Errorf("%w: %d bytes are to be locked: raise RLIMIT_MEMLOCK (LimitMEMLOCK= of a systemd unit)", err, length)
	}
	return err
}

// Bytes returns the memory; nil once the region is closed. Close unmaps memory of AllocMR, so do
// not keep a slice of it longer. The device may write at any moment: a completion says that it has.
func (m *MR) Bytes() []byte {
	if m.use() != nil {
		return nil
	}
	defer m.done()

	return m.mem
}

// Addr returns where the memory begins, for the Addr of an [SGE] and for the peer's RemoteAddr.
func (m *MR) Addr() uint64 { return m.reg.addr }

// LKey returns the key by which local work requests name the region.
func (m *MR) LKey() uint32 { return m.reg.lkey }

// RKey returns the key by which a peer names the region.
func (m *MR) RKey() uint32 { return m.reg.rkey }

// Close deregisters the memory, and unmaps it if AllocMR mapped it. No posted request may name the
// region any more. If the device refuses, it may still write there, so the memory stays mapped
// until the device is closed.
func (m *MR) Close() error {
	return m.close(func(h handle) error {
		if err := m.pd.ctx.err("ibv_dereg_mr", m.pd.ctx.v.deregMR(h)); err != nil {
			if m.owned && !errors.Is(err, syscall.EBUSY) { // EBUSY leaves the region open
				m.pd.ctx.keepMapped(m.mem)
			}
			return err
		}

		m.pd.regionByLKey.CompareAndDelete(m.reg.lkey, m) // a new region may have the key already
		if m.owned {
			return syscall.Munmap(m.mem)
		}
		return nil
	})
}
