package hostcheck

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/internal/trust"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/probe"
)

// Checks runs all tests of this package. mirror is the path of the mirror, which need not exist; plugin is the path of
// the plugin's binary, or empty to search for it.
func Checks(mirror, plugin string) []probe.Result {
	var uts unix.Utsname
	unameErr := unix.Uname(&uts)
	results := []probe.Result{
		checkKernel(unix.ByteSliceToString(uts.Release[:]), unameErr),
		checkShm(mirror),
		checkMirrorDir(filepath.Dir(mirror)),
	}
	results = append(results, checkWords(mirror)...)
	status, err := os.ReadFile("/proc/self/status")
	results = append(results, checkCapabilities(string(status), err)...)
	return append(results, checkPlugin(plugin))
}

// checkKernel reports whether flowtally supports a kernel of this release: from 6.1 on, and with TCX from 6.6 on.
func checkKernel(release string, err error) probe.Result {
	r := probe.Result{Object: "kernel " + release, Feature: "kernel 6.1 or later"}
	if err != nil {
		r.Object = "kernel"
		r.Reason = err.Error()
		return r
	}
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		r.Reason = "the release does not start with a version"
		return r
	}

	switch {
	case major > 6 || major == 6 && minor >= 6:
		r.Answer = probe.Yes
	case major == 6 && minor >= 1:
		r.Answer = probe.Yes
		r.Reason = "counts ingress only: egress needs TCX, from 6.6 on"
	default:
		r.Answer = probe.No
		r.Reason = "too old"
		r.Fix = "a kernel from 6.1 on"
	}
	return r
}

// minSpace is the size of a mirror with the default history and its first segment of counters.
const minSpace = 9 << 20

// checkShm reports whether the mirror's file system is a tmpfs with enough free space.
func checkShm(mirror string) probe.Result {
	dir := existingParent(mirror)
	r := probe.Result{Object: dir, Feature: "tmpfs with room for a mirror"}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		r.Reason = err.Error()
		return r
	}

	free := st.Bavail * uint64(st.Bsize)
	switch {
	case uint32(st.Type) != unix.TMPFS_MAGIC:
		r.Answer = probe.No
		r.Reason = "not a tmpfs: the kernel writes the mirror back to a disk"
		r.Fix = ownDir
	case free < minSpace:
		r.Answer = probe.No
		r.Reason = fmt.Sprintf("%s free, a mirror needs %s", format.Bytes(free), format.Bytes(minSpace))
		// A fixed size in the fix could be below the current one, or below what is in use, which the kernel refuses.
		larger := (st.Blocks*uint64(st.Bsize) + 1<<30) >> 20
		r.Fix = fmt.Sprintf("mount -o remount,size=%dM %s, or remove files there", larger, trust.Quote(mountPoint(dir)))
	default:
		r.Answer = probe.Yes
		r.Reason = format.Bytes(free) + " free"
	}
	return r
}

// existingParent returns the deepest existing directory above path.
func existingParent(path string) string {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err == nil && st.IsDir() || dir == filepath.Dir(dir) {
			return dir
		}
	}
}

// mountPoint returns the mount point above dir. It compares device numbers, so it misses a bind mount of the same device.
func mountPoint(dir string) string {
	for {
		up := filepath.Dir(dir)
		if up == dir || !sameDevice(dir, up) {
			return dir
		}
		dir = up
	}
}

func sameDevice(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) == nil && unix.Stat(b, &y) == nil && x.Dev == y.Dev
}

const ownDir = "another --mirror PATH, in a directory of your own below /run or /dev/shm"

// checkMirrorDir reports whether this process can create a mirror in dir, and whether readers could trust it there.
func checkMirrorDir(dir string) probe.Result {
	r := probe.Result{Object: dir, Feature: "mirror writable"}
	var st unix.Stat_t
	exists := unix.Lstat(dir, &st) == nil
	if exists && distrusts(&r, dir, &st) {
		return r
	}

	if why, err := untrustedParent(dir); err != nil {
		r.Answer = probe.No
		r.Reason = err.Error()
		r.Fix = "another --mirror PATH"
		return r
	} else if why != "" {
		r.Answer = probe.No
		r.Reason = why
		r.Fix = "correct the named path, or another --mirror PATH"
		if command := trust.Command(why); command != "" {
			r.Fix = command + ", or another --mirror PATH"
		}
		return r
	}

	at := dir
	if !exists {
		at = existingParent(filepath.Join(dir, "mirror"))
	}
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		r.Answer = probe.No
		r.Reason = fmt.Sprintf("writing to %s: %v", at, err)
		r.Fix = "run as root"
		return r
	}
	r.Answer = probe.Yes
	if at != dir {
		r.Reason = "not there yet, made at the first start"
	}
	return r
}

// distrusts reports whether others could replace a mirror in this directory, by its own owner and mode. If so, it fills in
// r.
func distrusts(r *probe.Result, dir string, st *unix.Stat_t) bool {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		r.Reason = "not a directory"
		r.Fix = "another --mirror PATH"

	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		r.Reason = fmt.Sprintf("owned by uid %d, which could replace a mirror there", st.Uid)
		// Do not suggest chown: that user's files would stay in it.
		r.Fix = fmt.Sprintf("run as user %d, or another --mirror PATH", st.Uid)
		if os.Geteuid() == 0 && dir == "/dev/shm/flowtally" { // any user can create it, and so block root
			r.Fix = "mkdir -p /run/flowtally && mount -t tmpfs -o mode=0755 tmpfs /run/flowtally, or another --mirror PATH"
		}

	case st.Mode&0o022 != 0:
		r.Reason = fmt.Sprintf("mode %04o: others could replace a mirror there", st.Mode&0o7777)
		r.Fix = "chmod 0755 " + trust.Quote(dir)
		if st.Mode&unix.S_ISVTX != 0 { // never chmod a directory like /tmp, on whose mode other programs rely
			r.Fix = ownDir
		}

	default:
		return false
	}
	r.Answer = probe.No
	return true
}

// untrustedParent returns why another user could replace dir itself, or "" if nobody could.
func untrustedParent(dir string) (why string, err error) {
	f, why, err := trust.Open(filepath.Dir(dir), func(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() })
	if errors.Is(err, os.ErrNotExist) {
		return untrustedParent(filepath.Dir(dir))
	}
	if f != nil {
		f.Close()
	}
	return why, err
}

// capabilities lists what counting needs, and for what.
var capabilities = []struct {
	name string
	bit  uint
	why  string
}{
	{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN, "attaching to an interface"},
	{"CAP_BPF", unix.CAP_BPF, "loading programs and making maps"},
	{"CAP_PERFMON", unix.CAP_PERFMON, "programs that read packets through pointers"},
}

// checkCapabilities reports for each capability whether it is effective. Its arguments are the text of /proc/self/status,
// or the error of reading it.
func checkCapabilities(status string, err error) []probe.Result {
	effective, err := effectiveCapabilities(status, err)
	var results []probe.Result
	for _, c := range capabilities {
		r := probe.Result{Object: "this process", Feature: c.name}
		byAdmin := effective&(1<<unix.CAP_SYS_ADMIN) != 0 && c.bit != unix.CAP_NET_ADMIN // it implies the others
		switch {
		case err != nil:
			r.Reason = err.Error()
		case effective&(1<<c.bit) != 0 || byAdmin:
			r.Answer = probe.Yes
		default:
			r.Answer = probe.No
			r.Reason = "not effective; needed for " + c.why
			r.Fix = "run as root, or AmbientCapabilities=" + c.name + " in the systemd unit"
		}
		results = append(results, r)
	}
	return results
}

// effectiveCapabilities parses the effective capabilities in a status.
func effectiveCapabilities(status string, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(status) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	return 0, errors.New("/proc/self/status names no effective capabilities")
}

// checkPlugin reports whether the plugin's binary exists and is executable. Root also needs it to be writable by no other
// user.
func checkPlugin(path string) probe.Result {
	r := probe.Result{Object: cmp.Or(path, plugin.BinaryName), Feature: "plugin binary"}
	found, err := plugin.Find(path)
	if err == nil {
		r.Object = found
		r.Answer = probe.Yes
		return r
	}

	r.Answer = probe.No
	r.Reason = err.Error()
	r.Fix = "install flowtally-plugin beside flowtally, or --plugin PATH"
	if step := (interface{ NextStep() string })(nil); errors.As(err, &step) && step.NextStep() != "" {
		r.Fix = step.NextStep()
	}
	return r
}
