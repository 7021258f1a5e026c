package verbpage

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Only this file uses unsafe: atomic stores need a pointer into the mapping.

// word returns the number at offset at of the mapping, which must be a multiple of 8.
func word(mem []byte, at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&mem[at])) }

// New makes a page and its file, which the other process opens. The file is sealed at its length: otherwise a process
// could shorten it, and the other one would fault on its mapping.
func New() (*Page, *os.File, error) {
	fd, err := unix.MemfdCreate("flowtally-verbs", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("making a page for the names of verbs: %w", err)
	}
	f := os.NewFile(uintptr(fd), "verbs")

	err = f.Truncate(size)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	var p *Page
	if err == nil {
		p, err = Open(f)
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("making a page for the names of verbs: %w", err)
	}
	return p, f, nil
}

// Open maps the page of a file made by New, perhaps in another process. The caller may close the file afterwards.
func Open(f *os.File) (*Page, error) {
	info, err := f.Stat()
	if err == nil && info.Size() != size {
		err = fmt.Errorf("it has %d bytes, not %d: %w", info.Size(), size, unix.EINVAL)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the page of verbs: %w", err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the page of verbs: %w", err)
	}
	return newPage(mem), nil
}

// Close unmaps the page. Callers must ensure that no Begin or End runs or follows.
func (p *Page) Close() error {
	if p == nil || p.mem == nil {
		return nil
	}
	mem := p.mem
	p.mem = nil
	return unix.Munmap(mem)
}
