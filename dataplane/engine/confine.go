package engine

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/confine"
)

// PathsEnv names files and directories that a confined process may use besides, separated by colons. A library of a
// vendor may need one.
const PathsEnv = "FLOWTALLY_PLUGIN_PATHS"

// confinement is what keeps the process to the files of its instance. The zero value keeps it to nothing.
type confinement struct {
	wanted  bool
	cfg     dataplane.Config
	socket  string // directory of the plugin's socket; "" for none
	log     *slog.Logger
	started bool // the directories of the mirror and of the pins are there
	applied confine.Files
	missing error // why the process is not confined
}

// apply confines the process to the files that exist now. It is called before the start, when the directories of the
// mirror and of the pins may be missing, and then permits the directories in which the start makes them. It is called
// again when they are there, and permits them alone.
func (c *confinement) apply(started bool) {
	if !c.wanted || c.missing != nil {
		return
	}
	c.started = started
	files := c.files()
	if slices.Equal(files.Write, c.applied.Write) {
		return
	}
	if c.missing = confine.Process(files); c.missing != nil {
		c.log.Info("the process is not confined", "reason", c.missing)
		return
	}
	c.applied = files
}

// conditions says that the process is not confined although it should be.
func (c *confinement) conditions() []dataplane.Condition {
	if c.missing == nil {
		return nil
	}
	return []dataplane.Condition{{
		Code: dataplane.CodePluginUnconfined, Severity: dataplane.Low, Object: c.cfg.Instance,
		Text: "the process that counts is not confined to its files: " + c.missing.Error(),
		Fix:  "run a kernel with Landlock (CONFIG_SECURITY_LANDLOCK=y, and landlock in lsm=), and allow landlock_* in the system calls of the container or the unit",
	}}
}

// files lists what an instance of the configuration needs, from its start to its end.
func (c *confinement) files() confine.Files {
	f := confine.Files{
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
		},
		Write:   []string{"/dev/null", "/dev/zero"},
		Devices: []string{"/dev/infiniband"},
		All:     filepath.SplitList(os.Getenv(PathsEnv)),
	}
	if self, err := os.Executable(); err == nil {
		f.Read = append(f.Read, self) // the trial of a device executes it
	}
	for _, library := range []string{c.cfg.RDMA.Library, c.cfg.RDMA.MLX5, c.cfg.RDMA.EFA} {
		if filepath.IsAbs(library) {
			f.Read = append(f.Read, filepath.Dir(library))
		}
	}
	f.Read = append(f.Read, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
	f.Read = append(f.Read, strings.FieldsFunc(os.Getenv("LD_PRELOAD"), func(r rune) bool { return r == ':' || r == ' ' })...)

	f.Write = append(f.Write, nearest(filepath.Dir(c.cfg.Mirror.Path)), "/sys/fs/bpf/xdp") // and libxdp's pins
	c.addPins(&f)
	if c.socket != "" {
		f.Write = append(f.Write, c.socket)
		f.Make = append(f.Make, filepath.Dir(c.socket))
	}
	return f
}

// addPins permits the directory above the pins' directory, which all instances share by default. The pins' directory
// itself may be removed, and made again, while the instance runs: a rule for it would be a rule for the removed one.
func (c *confinement) addPins(f *confine.Files) {
	dir := c.cfg.XDP.PinDir
	above := filepath.Dir(dir)
	at := nearest(above)
	switch there := nearest(dir) == dir; {
	case !confine.OnBPFFS(at):
		f.Make = append(f.Make, at) // the start makes the directory there, and says that it is not on a bpffs
	case at == above && confine.OnBPFFS(filepath.Dir(at)), !there && !c.started:
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
