package flowrows

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
)

const systemBPF = "/sys/fs/bpf"

// ground is where instances stand: directories of this run, and a network namespace.
type ground struct {
	name string // of this run
	dir  string // on a tmpfs: mirrors, sockets, configurations
	bpf  string // on a bpffs
	ns   *lab.Netns
	used int // links
}

// prepare makes the ground, once.
func (s *site) prepare() (*ground, error) {
	if s.ground != nil {
		return s.ground, nil
	}
	g := &ground{name: lab.Unique("bench-")}
	g.dir = filepath.Join("/dev/shm", "flowtally-"+g.name)
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a directory for mirrors: %w", err)
	}
	s.open.Add(func() error { return os.RemoveAll(g.dir) })
	if err := s.mountBPF(g); err != nil {
		return nil, err
	}
	var err error
	if g.ns, err = lab.NewNetns(""); err != nil {
		return nil, err
	}
	s.open.Add(g.ns.Close)
	s.ground = g
	return g, nil
}

// mountBPF finds a bpffs for the pins, or mounts one for the time of the bench: instances in this
// process must see it, so a mount namespace of its own would not do.
func (s *site) mountBPF(g *ground) error {
	g.bpf = filepath.Join(systemBPF, "flowtally-"+g.name)
	var fs unix.Statfs_t
	if err := unix.Statfs(systemBPF, &fs); err != nil || fs.Type != unix.BPF_FS_MAGIC {
		g.bpf = filepath.Join("/run", "flowtally-"+g.name)
	}
	if err := os.Mkdir(g.bpf, 0o700); err != nil {
		return fmt.Errorf("making a directory for pins: %w", err)
	}
	s.open.Add(func() error { return os.RemoveAll(g.bpf) })
	if filepath.Dir(g.bpf) == systemBPF {
		return nil
	}
	if err := unix.Mount("bpf", g.bpf, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mounting a bpffs at %s: %w", g.bpf, err)
	}
	s.open.Add(func() error {
		if err := unix.Unmount(g.bpf, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmounting %s: %w", g.bpf, err)
		}
		return nil
	})
	return nil
}

// link makes a veth pair and returns the name of the end to count on.
func (g *ground) link() (string, error) {
	near := fmt.Sprintf("ft%d", g.used)
	if _, err := lab.NewPair(g.ns, g.ns, near, near+"far", lab.PairOptions{}); err != nil {
		return "", err
	}
	g.used++
	return near, nil
}
