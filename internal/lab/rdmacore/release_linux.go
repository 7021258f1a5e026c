package rdmacore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/archive"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// Release is the rdma-core of a suite.
type Release struct {
	Suite   string
	Version string // of Debian's package: "56.1-1"
	Major   int    // of rdma-core: 56
	Minor   int
	Include string // the directory of its headers
	dirs    map[string]string
}

func (r *Release) String() string { return "rdma-core " + r.Version + " of " + r.Suite }

// At reports whether the release is that one or a later one.
func (r *Release) At(major, minor int) bool {
	return r.Major > major || r.Major == major && r.Minor >= minor
}

// Get fetches the release of a suite, into the cache that is shared with the virtual machines. It is the need "archive".
func Get(t testing.TB, suite string) *Release {
	t.Helper()
	need.Tool(t, "apt-get", "apt-cache", "dpkg-deb")
	r, err := get(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil)), suite)
	if err != nil {
		need.Missing(t, "archive", err.Error())
	}
	return r
}

func get(ctx context.Context, log *slog.Logger, suite string) (*Release, error) {
	dir, err := archive.DefaultDir()
	if err != nil {
		return nil, err
	}
	s, err := archive.Cache{Dir: dir, Log: log}.Suite(ctx, suite)
	if err != nil {
		return nil, err
	}
	r := &Release{Suite: suite}
	r.dirs, err = s.WithLibraries(ctx, "libibverbs1", "ibverbs-providers", "libibverbs-dev")
	if err != nil {
		return nil, err
	}
	r.Include = filepath.Join(r.dirs["libibverbs-dev"], "usr", "include")
	_, r.Version, _ = strings.Cut(filepath.Base(r.dirs["libibverbs1"]), "_")
	if n, err := fmt.Sscanf(r.Version, "%d.%d", &r.Major, &r.Minor); n != 2 {
		return nil, fmt.Errorf("%s: reading its version: %w", r, err)
	}
	return r, nil
}

// Find returns the release of a version of rdma-core: "65.0", or "65.0-1.1" as the suite's package has it. Without a
// version it is the release of the distribution that this machine runs.
func Find(ctx context.Context, log *slog.Logger, version string) (*Release, error) {
	if version == "" {
		suite, err := archive.Codename()
		if err != nil {
			return nil, err
		}
		return get(ctx, log, suite)
	}
	var all []string
	for _, suite := range Suites() {
		r, err := get(ctx, log, suite)
		if err != nil {
			return nil, err
		}
		upstream, _, _ := strings.Cut(r.Version, "-")
		if version == upstream || version == r.Version {
			return r, nil
		}
		all = append(all, upstream+" ("+suite+")")
	}
	return nil, fmt.Errorf("rdma-core %s: no suite has this release today; the suites have %s", version, strings.Join(all, ", "))
}

// Root is a file tree in which programs of this machine run over a release.
type Root struct {
	*Release
	Dir    string
	server string // the path inside of the program that Serve copied
}

// NewRoot makes the tree of a release, which is removed at the end of the test.
func (r *Release) NewRoot(t testing.TB) *Root {
	t.Helper()
	need.Root(t)
	need.Cap(t, "sys_chroot", "mknod")
	r.record(t)
	root, err := r.RootIn(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// record writes that the calling test runs over the release.
func (r *Release) record(t testing.TB) {
	t.Helper()
	path := os.Getenv(RanEnv)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	name, _, _ := strings.Cut(t.Name(), "/")
	if _, err := fmt.Fprintf(f, "%s %s %d.%d\n", name, r.Suite, r.Major, r.Minor); err != nil {
		t.Fatal(err)
	}
}

// RootIn makes the tree of a release in an empty directory.
func (r *Release) RootIn(dir string) (*Root, error) {
	root := &Root{Release: r, Dir: dir}
	if err := root.fill(); err != nil {
		return nil, fmt.Errorf("making a root of %s: %w", r, err)
	}
	return root, nil
}

func (r *Root) fill() error {
	for _, d := range []string{"usr/lib", "usr/lib64", "etc", "tmp", "proc", "run", "dev/shm", "dev/infiniband"} {
		if err := os.MkdirAll(filepath.Join(r.Dir, d), 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"lib", "lib64"} { // Debian's are merged under /usr; older packages say /lib
		if err := os.Symlink("usr/"+d, filepath.Join(r.Dir, d)); err != nil {
			return err
		}
	}
	for name, dir := range r.dirs {
		if strings.HasSuffix(name, "-dev") {
			continue
		}
		for _, d := range []string{"usr/lib", "usr/lib64", "lib", "lib64", "etc"} {
			if err := copyTree(filepath.Join(dir, d), filepath.Join(r.Dir, d)); err != nil {
				return err
			}
		}
	}
	if err := unix.Mknod(filepath.Join(r.Dir, "dev/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		return err
	}
	return r.devices()
}

// copyTree copies directories, files and symbolic links. A directory that is there stays, also
// where it is a link to one.
func copyTree(from, to string) error {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		}
		return copyFile(path, target)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the package does not have the file
	}
	return err
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

// Run runs a program of this machine in the tree, over the tree's libraries, with no more than
// env in its environment. It returns the program's output.
func (r *Root) Run(ctx context.Context, program string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := r.Enter(cmd)
	if err == nil {
		err = cmd.Run()
	}
	return out.Bytes(), err
}

// Enter changes a command that was not started: its program will run in the tree, over the tree's libraries.
func (r *Root) Enter(cmd *exec.Cmd) error {
	inside := "/" + filepath.Base(cmd.Path)
	path := filepath.Join(r.Dir, inside)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may run
		return err
	}
	if err := copyFile(cmd.Path, path); err != nil {
		return err
	}
	if r.server != "" {
		cmd.Args = append([]string{r.server, inside}, cmd.Args[1:]...)
		inside = r.server
	}
	cmd.Path, cmd.Dir, cmd.SysProcAttr = inside, "/", &syscall.SysProcAttr{Chroot: r.Dir}
	return nil
}
