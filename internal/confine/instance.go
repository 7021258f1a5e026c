package confine

import (
	"os"
	"path/filepath"
	"strings"
)

// Instance has the configured paths of an instance, from which Files follow.
type Instance struct {
	Mirror    string   // path of the mirror
	Pins      string   // directory of the pins
	Libraries []string // RDMA libraries, as configured
}

// Files lists all files that the process of an instance needs during its life. socket is the directory of the plugin's
// socket, or "".
func (i Instance) Files(socket string) Files {
	f := Files{
		Read: []string{
			// Libraries, and the files by which the loader and libibverbs find them.
			"/usr", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/gnu/store",
			"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/libibverbs.d", "/etc/rdma",
			// To look up groups, and for local times in the log.
			"/etc/nsswitch.conf", "/etc/group", "/etc/passwd", "/etc/localtime",
			// Interfaces, devices and kernel settings. This does not expose the memory of other processes in /proc, which
			// only a process that may trace them can read.
			"/proc", "/sys",
			"/dev/urandom", "/dev/random",
			// The process executes itself, to confine itself and to test a device. Its file may have been removed.
			"/proc/self/exe",
		},
		Write:   []string{"/dev/null", "/dev/zero"},
		Devices: []string{"/dev/infiniband"},
	}
	for _, library := range i.Libraries {
		if filepath.IsAbs(library) {
			f.Read = append(f.Read, filepath.Dir(library))
		}
	}
	f.Read = append(f.Read, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
	f.Read = append(f.Read, strings.FieldsFunc(os.Getenv("LD_PRELOAD"), func(r rune) bool { return r == ':' || r == ' ' })...)

	f.Write = append(f.Write, nearest(filepath.Dir(i.Mirror)), "/sys/fs/bpf/xdp") // the latter has libxdp's pins
	f.addPins(i.Pins)
	if socket != "" {
		f.Write = append(f.Write, socket)
		f.Make = append(f.Make, filepath.Dir(socket))
	}
	return f
}

// addPins adds the parent of the pins' directory, which all instances share by default. A rule for the directory itself
// would be useless after somebody has removed it and the instance has made it again.
func (f *Files) addPins(dir string) {
	above := filepath.Dir(dir)
	at := nearest(above)
	switch there := nearest(dir) == dir; {
	case !onBPFFS(at):
		f.Make = append(f.Make, at) // let the start create the directory, and fail with a good error: it is not on a bpffs
	case at == above && onBPFFS(filepath.Dir(at)), !there:
		f.Write = append(f.Write, at)
	case there:
		// The parent is the root of the bpffs, which has pins of other programs.
		f.Write = append(f.Write, dir)
		f.Make = append(f.Make, at)
	}
}

// nearest returns the path if it exists, or else its nearest existing parent.
func nearest(path string) string {
	for {
		_, err := os.Lstat(path)
		above := filepath.Dir(path)
		if err == nil || above == path {
			return path
		}
		path = above
	}
}
