// Packaging makes a .deb and an .rpm from directories that make install has filled, so that a package
// has the files of make install, and no list of its own.
//
//	packaging -to DIR [-deb STAGE] [-rpm STAGE] [-version VERSION]
//
// The version and the time of every file are the commit's, unless -version and SOURCE_DATE_EPOCH name
// others: equal sources give equal packages. Files belong to root, whatever user runs make.
//
// The program is a module of its own, so that nfpm is not among the dependencies of flowtally.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

func main() {
	to := flag.String("to", ".", "directory of the packages")
	version := flag.String("version", "", "version of the packages; empty: by git")
	arch := flag.String("arch", runtime.GOARCH, "architecture, by the name that Go has for it")
	stages := map[string]*string{
		"deb": flag.String("deb", "", "directory that make install DESTDIR= has filled for a .deb"),
		"rpm": flag.String("rpm", "", "directory that make install DESTDIR= has filled for an .rpm"),
	}
	flag.Parse()
	if err := run(*to, *version, *arch, stages); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

func run(to, version, arch string, stages map[string]*string) error {
	made, at, err := ofCommit()
	if err != nil && version == "" {
		return err
	}
	if at, err = epoch(at, err); err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		if *stages[format] == "" {
			continue
		}
		path, err := Build(Options{Format: format, Stage: *stages[format], Scripts: "scripts", Debian: "debian", To: to, Version: cmp.Or(version, made), Arch: arch, Time: at})
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}

// epoch is the time that SOURCE_DATE_EPOCH names, or the commit's.
func epoch(commit time.Time, err error) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return commit, err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s: reading a number of seconds: %w", text, err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// Options are the parts of a package.
type Options struct {
	Format  string // deb or rpm
	Stage   string // directory with the files, as make install DESTDIR=Stage leaves them
	Scripts string // directory of the scripts of the package manager
	Debian  string // directory of the files that a .deb has besides
	To      string // directory of the package
	Version string // in the form of the package managers: 1.2.3, 1.2.3~rc1
	Arch    string // as Go names it
	Time    time.Time
}

// Build writes one package and returns its path. Nothing is left at the path after an error.
func Build(o Options) (path string, err error) {
	packager, err := nfpm.Get(o.Format)
	if err != nil {
		return "", fmt.Errorf("format %s: %w", o.Format, err)
	}
	made, err := os.MkdirTemp("", "flowtally-package-")
	if err != nil {
		return "", fmt.Errorf("making a directory for what the %s has besides: %w", o.Format, err)
	}
	defer os.RemoveAll(made)
	info, err := infoOf(o, made)
	if err != nil {
		return "", fmt.Errorf("%s: %w", o.Stage, err)
	}
	if err := nfpm.PrepareForPackager(info, o.Format); err != nil {
		return "", fmt.Errorf("preparing the files of the %s: %w", o.Format, err)
	}
	path = filepath.Join(o.To, packager.ConventionalFileName(info))
	f, err := os.CreateTemp(o.To, ".package-*")
	if err != nil {
		return "", fmt.Errorf("writing the %s: %w", o.Format, err)
	}
	defer os.Remove(f.Name())
	err = packager.Package(info, f)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("writing the %s: %w", o.Format, err)
	}
	return path, nil
}
