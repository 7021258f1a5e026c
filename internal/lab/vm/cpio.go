package vm

import (
	"fmt"
	"io"
	"math"
)

// File types of a mode (inode(7)), as cpio carries them.
const (
	typeMask    = 0o170000
	typeFile    = 0o100000
	typeDir     = 0o040000
	typeSymlink = 0o120000
	typeChar    = 0o020000
)

// cpioEntry is one member of an archive in the newc form, which is the one
// that Linux unpacks (Documentation/driver-api/early-userspace/buffer-format.rst).
type cpioEntry struct {
	name         string // without a leading slash
	mode         uint32 // type and permissions
	major, minor uint32 // of a device node
	size         int64
	body         io.Reader // size bytes; nil where size is 0
}

// cpioWriter writes members one after the other. Everything belongs to root and
// is of the epoch: equal content makes equal archives.
type cpioWriter struct {
	w   io.Writer
	ino uint32 // unique, so that no two members look like links of one file
	off int64
}

const (
	cpioMagic   = "070701"
	cpioHeader  = 6 + 13*8
	cpioTrailer = "TRAILER!!!"
)

func (c *cpioWriter) add(e cpioEntry) error {
	if e.size > math.MaxUint32 {
		return fmt.Errorf("archiving %s: %d bytes are more than a header of newc can say", e.name, e.size)
	}
	c.ino++
	if err := c.header(e); err != nil {
		return fmt.Errorf("archiving %s: %w", e.name, err)
	}
	if e.size > 0 {
		n, err := io.Copy(c, e.body)
		if err == nil && n != e.size {
			err = fmt.Errorf("%d bytes came, and %d were announced", n, e.size)
		}
		if err != nil {
			return fmt.Errorf("archiving %s: %w", e.name, err)
		}
	}
	return c.pad()
}

// header writes the header before the body, in 4-byte alignment.
func (c *cpioWriter) header(e cpioEntry) error {
	nlink := uint32(1)
	if e.mode&typeMask == typeDir {
		nlink = 2
	}
	fields := [13]uint32{
		c.ino, e.mode, 0, 0, nlink, 0, uint32(e.size),
		0, 0, e.major, e.minor, uint32(len(e.name) + 1), 0,
	}
	if _, err := io.WriteString(c, cpioMagic); err != nil {
		return err
	}
	for _, f := range fields {
		if _, err := fmt.Fprintf(c, "%08x", f); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(c, e.name+"\x00"); err != nil {
		return err
	}
	return c.pad()
}

// close writes the member that ends an archive.
func (c *cpioWriter) close() error {
	c.ino = 0
	return c.header(cpioEntry{name: cpioTrailer})
}

// Write counts the bytes written, for the padding.
func (c *cpioWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.off += int64(n)
	return n, err
}

func (c *cpioWriter) pad() error {
	_, err := c.Write(make([]byte, -c.off&3))
	return err
}
