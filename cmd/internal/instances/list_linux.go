package instances

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// mostDepth is how deep below a bpffs to look for pins.
const mostDepth = 4

// List lists the instances whose mirrors are at the usual places and whose pins are on a bpffs of this mount namespace,
// as far as this user may look. mirrors and pins add further paths. A path that does not exist, such as "", is ignored.
func List(mirrors, pins []string) ([]Instance, error) {
	held, err := locks()
	if err != nil {
		return nil, err
	}
	for _, dir := range mirrorDirs() {
		mirrors = append(mirrors, mirrorsIn(dir)...)
	}
	for _, root := range bpffs() {
		pins = append(pins, pinDirs(root)...)
	}

	mirrorPlaces := placesOf(mirrors, held, func(path string) string { return shm.Files(path)[1] })
	pinPlaces := placesOf(pins, held, func(dir string) string { return dir })
	return join(mirrorPlaces, pinPlaces, countLinks, status), nil
}

// placesOf returns the existing paths, each once. lock returns the file that a running instance keeps locked, and held
// maps a file's identity to the process that has locked it.
func placesOf(paths []string, held map[string]int, lock func(path string) string) (all []place) {
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil {
			all = append(all, place{path, st.Uid, held[identity(lock(path))]})
		}
	}
	return all
}

// mirrorDirs returns the default directories for mirrors, of this user and of others.
func mirrorDirs() []string {
	dirs := []string{filepath.Dir(shm.DefaultPath("default")), "/run/flowtally", "/dev/shm/flowtally"}
	users, _ := filepath.Glob("/run/user/*/flowtally")
	dirs = append(dirs, users...)
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// mirrorsIn lists the mirrors in a directory. The directory may be a trap by its owner, so, like shm.Locate, we follow no
// link and skip names that are not valid for an instance.
func mirrorsIn(dir string) (mirrors []string) {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*.mirror"))
	return slices.DeleteFunc(found, func(path string) bool { return dataplane.ValidateInstance(nameOfMirror(path)) != nil })
}

// bpffs lists the mount points of bpf file systems.
func bpffs() (roots []string) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "bpf" {
			roots = append(roots, f[1])
		}
	}
	return roots
}

// pinDirs lists the directories below a bpffs with pins of flowtally.
func pinDirs(root string) (dirs []string) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // a directory of another user, or one removed meanwhile
		}
		if strings.Count(strings.TrimPrefix(path, root), "/") > mostDepth {
			return fs.SkipDir
		}
		if has(path, "counters") && has(path, "entries") && (has(path, "meta") || has(path, "ranks")) {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

func has(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

func countLinks(dir string) int {
	links, _ := filepath.Glob(filepath.Join(dir, "link-*"))
	return len(links)
}

// locks returns the process behind each lock of flock(2), by the identity of the file. We read /proc/locks instead of
// trying to take a lock, which could make an instance's start fail.
func locks() (map[string]int, error) {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return nil, fmt.Errorf("listing locks: %w", err)
	}
	defer f.Close()

	holderByFile := make(map[string]int)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1] != "FLOCK" { // a waiting process has "->" before FLOCK
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil || pid <= 0 {
			pid = -1 // of another PID namespace
		}
		holderByFile[f[5]] = pid
	}
	return holderByFile, nil
}

// status reads the state of a mirror's writer. It takes an unreadable mirror, such as a truncated one, for that of a dead
// writer.
func status(path string) (halted bool, size uint64, idle time.Duration) {
	info, err := os.Lstat(path)
	if err != nil {
		return false, 0, 0
	}
	size = uint64(info.Size())
	r, err := shm.OpenReader(path, shm.ReaderOptions{AnyOwner: true})
	if err != nil {
		return false, size, time.Since(info.ModTime())
	}
	defer r.Close()
	s := r.Status()
	return s.State == shm.Halt, size, s.Age
}

// identity names a file in the way of /proc/locks: by device and inode. It returns "" for a missing file.
func identity(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return ""
	}
	return fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
}

// Readers returns a function that reports whether any process has mapped a mirror, as far as this user may look. It
// compares inodes and not paths, because a container has the mirror at another path.
func Readers() func(mirror string) bool {
	mapped := make(map[string]bool)
	maps, _ := filepath.Glob("/proc/[0-9]*/maps")
	for _, path := range maps {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended, or belongs to another user
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 5 { // addresses, mode, offset, device, inode, name
				mapped[f[3]+":"+f[4]] = true
			}
		}
	}
	return func(mirror string) bool { return mapped[identity(mirror)] }
}
