package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
)

const maintainer = "The flowtally authors <flowtally@users.noreply.github.com>"

// infoOf describes the package to nfpm. Files that are made for it are below the directory made.
func infoOf(o Options, made string) (*nfpm.Info, error) {
	contents, programs, err := contentsOf(o)
	if err != nil {
		return nil, err
	}
	if o.Format == "deb" {
		if contents, err = withDebian(contents, o, made); err != nil {
			return nil, err
		}
	}
	libc, err := libcOf(programs)
	if err != nil {
		return nil, err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "flowtally", Arch: o.Arch, Platform: "linux", Version: o.Version, VersionSchema: "none", Release: "1",
		Section: "net", Priority: "optional", Maintainer: maintainer,
		Vendor: "flowtally", Homepage: "https://github.com/flowtally/flowtally", License: "Apache-2.0",
		Description: "counts network flows and mirrors the counts into shared memory\n" +
			"flowtally counts flows in the tables of an RDMA NIC, or in the XDP and TCX\n" +
			"hooks of the kernel. Readers map the counts read-only: no system call, no\n" +
			"lock, no privilege.",
		MTime: o.Time, DisableGlobbing: true,
		Overridables: nfpm.Overridables{Contents: contents},
	})
	script := func(name string) string { return filepath.Join(o.Scripts, o.Format+"-"+name) }
	switch o.Format {
	case "deb":
		info.Depends = []string{"libc6 (>= " + libc + ")"}
		info.Recommends = []string{"libibverbs1", "ibverbs-providers"}
		info.Deb.Triggers.ActivateNoAwait = []string{"ldconfig"}
		info.Scripts = nfpm.Scripts{PostInstall: script("postinst"), PreRemove: script("prerm"), PostRemove: script("postrm")}
	case "rpm":
		info.Depends = []string{"libc.so.6(GLIBC_" + libc + ")(64bit)"}
		info.Recommends = []string{"libibverbs"}
		info.RPM.BuildHost = "flowtally" // the name of the machine would differ
		info.RPM.Summary = "Counts network flows and mirrors the counts into shared memory"
		info.Scripts = nfpm.Scripts{PostInstall: script("post"), PreRemove: script("preun"), PostRemove: script("postun")}
	}
	return info, nil
}

// contentsOf lists the files below the stage, owned by root, and the ELF files among them. The files of /etc are
// the administrator's to change. A file that a user other than root could write is refused.
func contentsOf(o Options) (contents files.Contents, programs []string, err error) {
	err = filepath.WalkDir(o.Stage, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == o.Stage {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		c := &files.Content{
			Source: path, Destination: strings.TrimPrefix(path, filepath.Clean(o.Stage)),
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: info.Mode().Perm(), MTime: o.Time},
		}
		switch {
		case d.IsDir():
			if !strings.Contains(c.Destination+"/", "/flowtally/") {
				return nil // a directory of the system
			}
			c.Source, c.Type, c.FileInfo.Mode = "", files.TypeDir, 0o755
		case info.Mode().Type() == fs.ModeSymlink:
			c.Type = files.TypeSymlink
			if c.Source, err = os.Readlink(path); err != nil {
				return err
			}
		case !info.Mode().IsRegular() || info.Mode()&^0o755 != 0:
			return fmt.Errorf("%s has mode %v: a package has programs of mode 0755 and files of mode 0644", c.Destination, info.Mode())
		case strings.HasPrefix(c.Destination, "/etc/"):
			c.Type = files.TypeConfigNoReplace
		default:
			c.Type = files.TypeFile
			if c.FileInfo.Mode&0o111 != 0 || strings.Contains(d.Name(), ".so.") {
				programs = append(programs, path)
			}
		}
		contents = append(contents, c)
		return nil
	})
	if err == nil && len(programs) == 0 {
		err = errors.New("holds no program: make install has not filled it")
	}
	return contents, programs, err
}

// withDebian adds what the policy of Debian asks for beside the files of make install: a copyright file that names the
// license in place of having its text, a changelog, and the reasons why lintian is wrong.
func withDebian(contents files.Contents, o Options, made string) (files.Contents, error) {
	changelog := filepath.Join(made, "changelog.Debian.gz")
	if err := writeChangelog(changelog, o); err != nil {
		return nil, err
	}
	for destination, source := range map[string]string{
		"/usr/share/doc/flowtally/copyright":           filepath.Join(o.Debian, "copyright"),
		"/usr/share/doc/flowtally/changelog.Debian.gz": changelog,
		"/usr/share/lintian/overrides/flowtally":       filepath.Join(o.Debian, "lintian-overrides"),
	} {
		contents = slices.DeleteFunc(contents, func(c *files.Content) bool { return c.Destination == destination })
		contents = append(contents, &files.Content{
			Source: source, Destination: destination, Type: files.TypeFile,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o644, MTime: o.Time},
		})
	}
	return contents, nil
}

// writeChangelog writes a changelog with the one entry of this version: git has the changes.
func writeChangelog(path string, o Options) error {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression) // without a name and a time
	if err == nil {
		_, err = fmt.Fprintf(z, "flowtally (%s-1) unstable; urgency=medium\n\n  * The commits are on https://github.com/flowtally/flowtally.\n\n -- %s  %s\n",
			o.Version, maintainer, o.Time.Format(time.RFC1123Z))
	}
	if err == nil {
		err = z.Close()
	}
	if err == nil {
		err = os.WriteFile(path, packed.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the changelog: %w", err)
	}
	return nil
}
