package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CacheEnv names the variable that moves the cache.
const CacheEnv = "FLOWTALLY_VM_CACHE"

// Cache is a directory of unpacked packages of the distribution, outside of any tree
// of sources. It may be shared by processes, and be removed while none uses it.
type Cache struct {
	Dir string
	Log *slog.Logger // nil discards
}

// DefaultDir is FLOWTALLY_VM_CACHE; for root /var/cache/flowtally-vm, for
// others flowtally-vm in the user's own cache.
func DefaultDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		return filepath.Abs(dir)
	}
	if os.Geteuid() == 0 {
		return "/var/cache/flowtally-vm", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("looking for the user's cache: %w", err)
	}
	return filepath.Join(dir, "flowtally-vm"), nil
}

// Package returns the directory that the newest version of a package is
// unpacked in, after fetching it where it is not there. What a package like
// linux-image-amd64 stands for by depending on it is asked for by [Cache.Newest].
// Where the archive cannot be asked, the version that is there stands.
func (c Cache) Package(ctx context.Context, name string) (string, error) {
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache of packages: %w", err)
	}
	unlock, err := lockDir(c.Dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	version, err := field(ctx, name, "Version")
	if err != nil {
		if held, _ := filepath.Glob(filepath.Join(c.Dir, name+"_*")); len(held) == 1 {
			log.Warn("the archive does not answer: using what is cached", "package", held[0], "reason", err)
			return held[0], nil
		}
		return "", err
	}
	dir := filepath.Join(c.Dir, name+"_"+version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	log.Info("fetching", "package", name, "version", version, "cache", c.Dir)
	if err := c.fetch(ctx, name, version, dir); err != nil {
		return "", fmt.Errorf("fetching package %s %s: %w", name, version, err)
	}
	// Older versions, which nobody asks for any more: the cache stays bounded.
	held, err := filepath.Glob(filepath.Join(c.Dir, name+"_*"))
	if err != nil {
		return "", err
	}
	for _, h := range held {
		if h != dir {
			err = errors.Join(err, os.RemoveAll(h))
		}
	}
	return dir, err
}

// fetch unpacks beside dir and renames: a directory that is there is complete.
func (c Cache) fetch(ctx context.Context, name, version, dir string) error {
	tmp, err := os.MkdirTemp(c.Dir, "fetching-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	// apt-get downloads as a user of its own, who must be able to reach it.
	if err := os.Chmod(tmp, 0o777); err != nil {
		return err
	}
	if _, err := run(ctx, tmp, "apt-get", "-q", "download", name+"="+version); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get left %d packages in %s: %w", len(debs), tmp, err)
	}
	out := filepath.Join(tmp, "unpacked")
	if _, err := run(ctx, tmp, "dpkg-deb", "-x", debs[0], out); err != nil {
		return err
	}
	return os.Rename(out, dir)
}

// Newest is the package that a metapackage depends on: for
// "linux-image-6.12-amd64" the newest kernel of that line.
func (c Cache) Newest(ctx context.Context, meta string) (string, error) {
	depends, err := field(ctx, meta, "Depends")
	if err == nil {
		first, _, _ := strings.Cut(depends, ",")
		name, _, _ := strings.Cut(strings.TrimSpace(first), " ")
		return name, nil
	}
	// linux-image-6.12-amd64 stands for linux-image-6.12.117+deb12-amd64.
	prefix, flavour, _ := strings.Cut(strings.TrimPrefix(meta, "linux-image-"), "-")
	held, _ := filepath.Glob(filepath.Join(c.Dir, "linux-image-"+prefix+"*-"+flavour+"_*"))
	if len(held) != 1 {
		return "", err
	}
	name, _, _ := strings.Cut(filepath.Base(held[0]), "_")
	return name, nil
}

// field of what apt-cache knows of the candidate version. Where it knows nothing
// and this process may, the lists are fetched: a machine that was just made has none.
func field(ctx context.Context, name, field string) (string, error) {
	show := func() (string, error) {
		out, err := run(ctx, "", "apt-cache", "show", "--no-all-versions", name)
		if err != nil {
			return "", fmt.Errorf("asking the archive for %s (does `apt-get update` help?): %w", name, err)
		}
		for line := range strings.Lines(string(out)) {
			if v, ok := strings.CutPrefix(line, field+": "); ok {
				return strings.TrimSpace(v), nil
			}
		}
		return "", fmt.Errorf("asking the archive for %s: no field %s", name, field)
	}
	value, err := show()
	if err == nil || os.Geteuid() != 0 {
		return value, err
	}
	if _, err := run(ctx, "", "apt-get", "-q", "update"); err != nil {
		return "", err
	}
	return show()
}

// run returns the output of a program, and its complaints in the error.
func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// lockDir keeps other processes out until the returned function is called.
func lockDir(dir string) (func(), error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the cache: %w", err)
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking the cache %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}
