package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

	suite   string            // "": the suite that this machine installs from
	options []string          // of apt, before the command's own
	shown   map[string]string // what apt-cache has shown of packages, by name; nil: ask each time
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

// Package returns the directory that the newest version of a package is unpacked in,
// after fetching it where it is not there.
func (c Cache) Package(ctx context.Context, name string) (string, error) {
	return c.get(ctx, name, func() (string, error) { return name, nil })
}

// KernelOf returns the directories of a metapackage's kernel: for "linux-image-6.12-amd64", of the newest one of that
// line. Where the image holds no kernel, it is split into three packages: the kernel, its modules, and their base.
func (c Cache) KernelOf(ctx context.Context, meta string) ([]string, error) {
	image, err := c.get(ctx, meta, func() (string, error) {
		depends, err := c.field(ctx, meta, "Depends")
		if err != nil {
			return "", err
		}

		for d := range strings.SplitSeq(depends, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(d), " ")
			if strings.HasPrefix(name, imagePrefix) {
				return name, nil
			}
		}
		return "", fmt.Errorf("looking for the kernel of %s: it depends on %q", meta, depends)
	})
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(image, "boot")); err == nil {
		return []string{image}, nil
	}

	release, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(image), imagePrefix), "_")
	var dirs []string
	for _, part := range []string{"binary", "modules", "base"} {
		dir, err := c.get(ctx, meta+"-"+part, func() (string, error) { return "linux-" + part + "-" + release, nil })
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// imagePrefix begins the name of every package of a kernel.
const imagePrefix = "linux-image-"

// VersionOf returns the version of a package that apt would install.
func (c Cache) VersionOf(ctx context.Context, name string) (string, error) {
	return c.field(ctx, name, "Version")
}

// Older says whether version a is older than b, in the order of Debian.
func Older(ctx context.Context, a, b string) (bool, error) {
	err := exec.CommandContext(ctx, "dpkg", "--compare-versions", a, "lt", b).Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("comparing versions %s and %s: %w", a, b, err)
	}
	return true, nil
}

// get fetches the package that resolve names, unless its newest version is there. A link
// called key leads to the package that was fetched last, which is used where the archive
// does not reply. A newer package removes the older one, so that the cache stays bounded.
func (c Cache) get(ctx context.Context, key string, resolve func() (string, error)) (string, error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache of packages: %w", err)
	}
	unlock, err := lockDir(c.Dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	link := filepath.Join(c.Dir, key)
	last, _ := os.Readlink(link) // "": the cache is empty
	dir, err := c.newest(ctx, resolve)
	if err != nil && c.suite != "" {
		return "", fmt.Errorf("getting package %s of %s: %w", key, c.suite, err)
	}
	if err != nil && os.Geteuid() == 0 {
		// A machine that was just made has no lists, and the archive may have dropped packages of old lists.
		if _, err = run(ctx, c.Dir, "apt-get", nil, "-q", "update"); err == nil {
			dir, err = c.newest(ctx, resolve)
		}
	}
	if err != nil {
		held := filepath.Join(c.Dir, last)
		if _, missing := os.Stat(held); last == "" || missing != nil {
			return "", fmt.Errorf("getting package %s (does `apt-get update` help?): %w", key, err)
		}
		c.log().Warn("the archive does not reply: using the cached package", "package", last, "reason", err)
		return held, nil
	}
	if filepath.Base(dir) == last {
		return dir, nil
	}
	next := link + ".next"
	os.Remove(next) // of a process that was killed between these two
	if err := errors.Join(os.Symlink(filepath.Base(dir), next), os.Rename(next, link)); err != nil {
		return "", fmt.Errorf("getting package %s: %w", key, err)
	}
	if last != "" {
		err = os.RemoveAll(filepath.Join(c.Dir, last))
	}
	return dir, err
}

// newest is where the newest version is unpacked, which it fetches when it is not there.
func (c Cache) newest(ctx context.Context, resolve func() (string, error)) (string, error) {
	name, err := resolve()
	if err != nil {
		return "", err
	}
	version, err := c.field(ctx, name, "Version")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(c.Dir, name+"_"+version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	c.log().Info("fetching", "package", name, "version", version, "cache", c.Dir)
	return dir, c.fetch(ctx, name, version, dir)
}

func (c Cache) log() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}

// fetch unpacks beside dir and renames: a directory that is there is complete.
func (c Cache) fetch(ctx context.Context, name, version, dir string) error {
	tmp, err := os.MkdirTemp(c.Dir, "fetching-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	// apt-get downloads as a user of its own, which must be able to write here.
	if err := os.Chmod(tmp, 0o777); err != nil {
		return err
	}
	if _, err := c.apt(ctx, tmp, "apt-get", "-q", "download", name+"="+version); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil {
		return err
	}
	if len(debs) != 1 {
		return fmt.Errorf("fetching %s=%s: apt-get left %d packages, want one", name, version, len(debs))
	}
	out := filepath.Join(tmp, "unpacked")
	if _, err := run(ctx, tmp, "dpkg-deb", nil, "-x", debs[0], out); err != nil {
		return err
	}
	return os.Rename(out, dir)
}

var errNoField = errors.New("no such field")

// field returns a field of the version that would be installed, as apt-cache shows it.
func (c Cache) field(ctx context.Context, name, field string) (string, error) {
	text, shown := c.shown[name]
	if !shown {
		out, err := c.apt(ctx, "", "apt-cache", "show", "--no-all-versions", name)
		if err != nil {
			return "", err
		}
		text = string(out)
	}
	if value, is := lineOf(text, field); is {
		return value, nil
	}
	return "", fmt.Errorf("asking apt-cache for %s: %w: %s", name, errNoField, field)
}

// lineOf returns the value of a field in the text of apt-cache.
func lineOf(text, field string) (value string, is bool) {
	for line := range strings.Lines(text) {
		if v, is := strings.CutPrefix(line, field+": "); is {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

// apt runs a program of apt, over the lists of the suite.
func (c Cache) apt(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	return run(ctx, dir, name, c.options, args...)
}

// run returns the output of a program, and its complaints in the error, which leaves out the options.
func run(ctx context.Context, dir, name string, options []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, slices.Concat(options, args)...)
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
