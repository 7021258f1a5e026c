package vm

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// Image is the content of an initramfs: guest paths and where their content comes
// from. The zero value is not ready: see [NewImage]. Not for concurrent use.
type Image struct {
	members map[string]member
}

// member is one file of an image. Exactly one of host and data is its content.
type member struct {
	mode         uint32
	host         string
	data         []byte
	major, minor uint32
}

// NewImage is an image with the directories that every system has, merged under
// /usr as Debian's are, and the console that the kernel hands to the first process.
func NewImage() *Image {
	img := &Image{members: make(map[string]member)}
	for _, d := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "sys", "dev", "run", "tmp", "root", "etc"} {
		img.Dir("/" + d)
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		img.Symlink("usr/"+d, "/"+d)
	}
	img.members["dev/console"] = member{mode: typeChar | 0o600, major: 5, minor: 1}
	return img
}

// Dir makes a directory and those above it.
func (img *Image) Dir(guest string) {
	for p := place(guest); p != "." && p != ""; p = path.Dir(p) {
		if _, ok := img.members[p]; ok {
			return
		}
		img.members[p] = member{mode: typeDir | 0o755}
	}
}

// Symlink makes guest point to target.
func (img *Image) Symlink(target, guest string) {
	img.put(guest, member{mode: typeSymlink | 0o777, data: []byte(target)})
}

// Bytes makes a file of data.
func (img *Image) Bytes(guest string, data []byte, perm os.FileMode) {
	img.put(guest, member{mode: typeFile | uint32(perm.Perm()), data: data})
}

// File copies a file of this machine, read when the image is written. Links are
// followed.
func (img *Image) File(host, guest string, perm os.FileMode) {
	img.put(guest, member{mode: typeFile | uint32(perm.Perm()), host: host})
}

func (img *Image) put(guest string, m member) {
	p := place(guest)
	img.Dir("/" + path.Dir(p))
	img.members[p] = m
}

// place is the name that a guest path has in the archive: merged under /usr, as
// the directories are, since a path through a symbolic link cannot be archived.
func place(guest string) string {
	p := strings.TrimPrefix(path.Clean("/"+guest), "/")
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if strings.HasPrefix(p, d+"/") {
			return "usr/" + p
		}
	}
	return p
}

// Names lists the guest paths, sorted, without their leading slash.
func (img *Image) Names() []string { return slices.Sorted(maps.Keys(img.members)) }

// Write writes the archive. A directory comes before its entries, because the kernel does not
// create missing directories.
func (img *Image) Write(w io.Writer) error {
	c := &cpioWriter{w: w}
	for _, name := range img.Names() {
		if err := img.members[name].write(c, name); err != nil {
			return err
		}
	}
	return c.close()
}

func (m member) write(c *cpioWriter, name string) error {
	e := cpioEntry{name: name, mode: m.mode, major: m.major, minor: m.minor}
	if m.host == "" {
		e.size, e.body = int64(len(m.data)), bytes.NewReader(m.data)
		return c.add(e)
	}
	f, err := os.Open(m.host)
	if err != nil {
		return fmt.Errorf("archiving %s: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("archiving %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("archiving %s: %s is not a regular file", name, m.host)
	}
	e.size, e.body = info.Size(), f
	return c.add(e)
}
