package confine

import (
	"os"
	"path/filepath"
	"strings"
)

// Instance is what the files of a plugin depend on. The host knows it before it starts the process.
type Instance struct {
	Mirror    string   // path of the mirror
	Pins      string   // directory of the pins
	Libraries []string // of RDMA, as the configuration names them
}

// Files lists what the process of an instance needs, from its start to its end. socket is the directory of the plugin's
// socket, "" for none.
func (i Instance) Files(socket string) Files {
	f := Files{
		Read: []string{
			// Libraries, and what the loader and libibverbs read to find them.
			"/usr", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/gnu/store",
			"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/libibverbs.d", "/etc/rdma",
			// Names of groups, and times of the log.
			"/etc/nsswitch.conf", "/etc/group", "/etc/passwd", "/etc/localtime",
			// Interfaces, devices and the kernel's settings. Another process's memory is not readable below /proc: that
			// takes the right to trace the process, which a confined process does not have.
			"/proc", "/sys",
			"/dev/urandom", "/dev/random",
			// The process executes itself, to be confined and to try a device. The file may have no name any more.
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

	f.Write = append(f.Write, nearest(filepath.Dir(i.Mirror)), "/sys/fs/bpf/xdp") // and libxdp's pins
	f.addPins(i.Pins)
	if socket != "" {
		f.Write = append(f.Write, socket)
		f.Make = append(f.Make, filepath.Dir(socket))
	}
	return f
}

// addPins permits the directory above the pins' directory, which all instances share by default. The pins' directory
// itself may be removed, and made again, while the instance runs: a rule for it would be a rule for the removed one.
func (f *Files) addPins(dir string) {
	above := filepath.Dir(dir)
	at := nearest(above)
	switch there := nearest(dir) == dir; {
	case !onBPFFS(at):
		f.Make = append(f.Make, at) // the start makes the directory there, and says that it is not on a bpffs
	case at == above && onBPFFS(filepath.Dir(at)), !there:
		f.Write = append(f.Write, at)
	case there:
		// The directory above is the root of the bpffs, where other programs have pins.
		f.Write = append(f.Write, dir)
		f.Make = append(f.Make, at)
	}
}

// nearest returns the path, or the directory above it that is nearest to it, that exists.
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
