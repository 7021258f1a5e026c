package archive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Source returns the directory that the upstream sources of a package of a suite are unpacked in, after fetching them
// where they are not there. The sources are as upstream released them, without the distribution's changes.
func (c Cache) Source(ctx context.Context, suite, name string) (string, error) {
	below := suite + "-src"
	dir := filepath.Join(c.Dir, below, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	s, err := c.lists(ctx, suite, "deb-src", below)
	if err != nil {
		return "", err
	}
	unlock, err := lockDir(s.Dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil { // another process has fetched them
		return dir, nil
	}
	if err := s.fetchSource(ctx, name, dir); err != nil {
		return "", fmt.Errorf("getting the sources of %s of %s: %w", name, suite, err)
	}
	return dir, nil
}

// fetchSource unpacks beside dir and renames, as fetch does.
func (c Cache) fetchSource(ctx context.Context, name, dir string) error {
	c.log().Info("fetching", "source", name, "suite", c.suite, "cache", c.Dir)
	tmp, err := os.MkdirTemp(c.Dir, "fetching-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o777); err != nil { // apt-get downloads as a user of its own
		return err
	}
	// apt-get fails, too, where the archive lacks the distribution's changes alone. What it leaves it has verified.
	_, fetchErr := c.apt(ctx, tmp, "apt-get", "-q", "source", "--download-only", "--only-source", name)
	tars, err := filepath.Glob(filepath.Join(tmp, "*.orig.tar.?z*"))
	if err != nil {
		return err
	}
	out := filepath.Join(tmp, "unpacked")
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	for _, tar := range tars {
		if filepath.Ext(tar) == ".asc" {
			continue // the signature
		}
		if _, err := run(ctx, out, "tar", nil, "--no-same-owner", "-xf", tar); err != nil {
			return err
		}
		return os.Rename(out, dir)
	}
	if fetchErr != nil {
		return fetchErr
	}
	return fmt.Errorf("apt-get left %q, want an archive of upstream", tars)
}
