package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoArchive says that this machine installs from no archive of Debian, so that there is no other
// suite of it.
var ErrNoArchive = errors.New("this machine installs from no archive of Debian")

// Suite returns a cache of the packages of another suite of Debian ("sid"), below c.Dir. It asks the archive
// for the suite's present lists. A suite that cannot be reached is an error, also where packages of it
// are in the cache.
func (c Cache) Suite(ctx context.Context, suite string) (Cache, error) {
	return c.lists(ctx, suite, "deb", suite)
}

// lists returns a cache in the directory name below c.Dir, from the suite's lists of a kind of packages.
func (c Cache) lists(ctx context.Context, suite, kind, name string) (Cache, error) {
	archive, err := c.debian(ctx)
	if err != nil {
		return Cache{}, fmt.Errorf("looking for suite %s: %w", suite, err)
	}
	s := Cache{Dir: filepath.Join(c.Dir, name), Log: c.Log, suite: suite}
	apt := filepath.Join(s.Dir, "apt")
	if err := os.MkdirAll(filepath.Join(apt, "lists", "partial"), 0o755); err != nil {
		return Cache{}, fmt.Errorf("making the cache of suite %s: %w", suite, err)
	}
	unlock, err := lockDir(s.Dir)
	if err != nil {
		return Cache{}, err
	}
	defer unlock()
	sources, status := filepath.Join(apt, "sources.list"), filepath.Join(apt, "status")
	text := kind + " " + archive + " " + suite + " main\n"
	if err := errors.Join(os.WriteFile(sources, []byte(text), 0o644), os.WriteFile(status, nil, 0o644)); err != nil {
		return Cache{}, fmt.Errorf("making the cache of suite %s: %w", suite, err)
	}
	for _, o := range []string{
		"Dir::Etc::SourceList=" + sources, "Dir::Etc::SourceParts=/dev/null",
		"Dir::Etc::Preferences=/dev/null", "Dir::Etc::PreferencesParts=/dev/null",
		"Dir::State::Lists=" + filepath.Join(apt, "lists"), "Dir::State::Status=" + status, // an installed package is not one of the suite
		"Dir::Cache=" + apt, "Dir::Cache::PkgCache=pkgcache.bin", "Acquire::Retries=5", "Acquire::Languages=none", "APT::Update::Error-Mode=any",
		"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
	} {
		s.options = append(s.options, "-o", o)
	}
	if _, err := s.apt(ctx, apt, "apt-get", "-q", "update"); err != nil {
		return Cache{}, fmt.Errorf("asking the archive for suite %s: %w", suite, err)
	}
	return s, nil
}

// Codename returns the suite of Debian that this machine runs ("bookworm").
func Codename() (string, error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoArchive, err)
	}
	var codename, id string
	for line := range strings.Lines(string(release)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch value = strings.Trim(value, `"`); key {
		case "ID":
			id = value
		case "VERSION_CODENAME":
			codename = value
		}
	}
	if id != "debian" || codename == "" {
		return "", fmt.Errorf("%w: it runs %s %s", ErrNoArchive, id, codename)
	}
	return codename, nil
}

// debian returns the address of the archive that this machine installs Debian from.
func (c Cache) debian(ctx context.Context) (string, error) {
	codename, err := Codename()
	if err != nil {
		return "", err
	}
	out, err := c.apt(ctx, "", "apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoArchive, err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == codename && f[1] == "main" {
			return f[2], nil
		}
	}
	return "", fmt.Errorf("%w: no source of it has %s/main", ErrNoArchive, codename)
}

// WithLibraries returns the directories that packages are unpacked in, and the directories of
// every library and every part of Python that they depend on.
func (c Cache) WithLibraries(ctx context.Context, packages ...string) (map[string]string, error) {
	dirs := make(map[string]string)
	c.shown = make(map[string]string)
	for len(packages) > 0 {
		if err := c.show(ctx, packages); err != nil {
			return nil, fmt.Errorf("asking for packages of %s: %w", c.suite, err)
		}
		var next []string
		for _, name := range packages {
			if dirs[name] != "" {
				continue
			}
			dir, err := c.Package(ctx, name)
			if err != nil {
				return nil, err
			}
			dirs[name] = dir
			depends, err := c.field(ctx, name, "Depends")
			if err != nil && !errors.Is(err, errNoField) {
				return nil, fmt.Errorf("getting the libraries of package %s of %s: %w", name, c.suite, err)
			}
			next = append(next, parts(depends)...)
		}
		packages = slices.DeleteFunc(next, func(name string) bool { return dirs[name] != "" })
	}
	return dirs, nil
}

// parts returns the libraries and the parts of Python in a field Depends.
func parts(depends string) []string {
	var names []string
	for d := range strings.SplitSeq(depends, ",") {
		first, _, _ := strings.Cut(strings.TrimSpace(d), " ")
		first, _, _ = strings.Cut(first, ":")
		part := strings.HasPrefix(first, "lib") || strings.HasPrefix(first, "python3")
		if part && !strings.HasSuffix(first, "-dev") {
			names = append(names, first)
		}
	}
	return names
}

// show keeps the fields of packages in c.shown. One call of apt-cache takes as long for many packages as for one. The
// lock keeps other processes from updating the lists meanwhile, of which apt-cache then reads a part.
func (c Cache) show(ctx context.Context, packages []string) error {
	unlock, err := lockDir(c.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	out, err := c.apt(ctx, "", "apt-cache", append([]string{"show", "--no-all-versions"}, packages...)...)
	if err != nil {
		return err
	}
	for stanza := range strings.SplitSeq(string(out), "\n\n") {
		if name, is := lineOf(stanza, "Package"); is {
			c.shown[name] = stanza
		}
	}
	for _, name := range packages {
		if c.shown[name] == "" {
			return fmt.Errorf("apt-cache shows no package %s", name)
		}
	}
	return nil
}
