package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// A stage that another user filled at another time, below another directory and with another umask, gives the same
// package, byte by byte.
func TestEqualStagesGiveEqualPackages(t *testing.T) {
	need.Root(t)
	stage := small(t, staged(t, "deb"))
	other := filepath.Join(t.TempDir(), "other")
	command(t, "cp", "--recursive", "--preserve=mode,links", stage, other)
	err := filepath.WalkDir(other, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if err := os.Chmod(path, 0o700); err != nil {
				return err
			}
		}
		return os.Lchown(path, 1234, 1234)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"deb", "rpm"} {
		a, err := os.ReadFile(build(t, format, stage, "1.0.0"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(build(t, format, other, "1.0.0"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("two packages %s of equal files differ", format)
		}
	}
}

func TestAFileThatOthersCouldWriteIsRefused(t *testing.T) {
	for _, mode := range []fs.FileMode{0o666, 0o775, 0o755 | fs.ModeSetuid} {
		stage := t.TempDir()
		path := filepath.Join(stage, "program")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := Build(Options{Format: "deb", Stage: stage, Scripts: "scripts", To: t.TempDir(), Version: "1", Arch: "amd64"})
		if err == nil || !strings.Contains(err.Error(), "/program has mode") {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}

func TestThePagesThatInstalledFilesNameAreInstalled(t *testing.T) {
	stage := staged(t, "deb")
	pages := 0
	for _, dir := range []string{"etc", "usr/lib/systemd", "usr/share/doc/flowtally"} {
		err := filepath.WalkDir(filepath.Join(stage, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) == ".md" { // a page links to others by itself
				return err
			}
			text, err := os.ReadFile(path)
			for _, page := range regexp.MustCompile(`\bdocs/[a-z-]+\.md`).FindAllString(string(text), -1) {
				pages++
				if _, err := os.Stat(filepath.Join(stage, "usr/share/doc/flowtally", page)); err != nil {
					t.Errorf("%s names %s: %v", path, page, err)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if pages == 0 {
		t.Error("no page was found")
	}
}

// Every file of the .deb belongs to root, and only root may write it; the scripts are shell.
func TestEveryFileOfTheDebBelongsToRoot(t *testing.T) {
	need.Tool(t, "dpkg-deb")
	deb := build(t, "deb", small(t, staged(t, "deb")), "1.0.0")
	files := 0
	for line := range strings.Lines(command(t, "dpkg-deb", "--contents", deb)) {
		f := strings.Fields(line)
		files++
		if mode := f[0]; f[1] != "root/root" || mode[0] != 'l' && (mode[5] == 'w' || mode[8] == 'w') {
			t.Errorf("%s", line)
		}
	}
	if files < 50 {
		t.Errorf("%d files", files)
	}
	if conffiles := command(t, "dpkg-deb", "--info", deb, "conffiles"); conffiles != "/etc/flowtally.yaml" {
		t.Errorf("conffiles: %s", conffiles)
	}
	scripts, err := filepath.Glob("scripts/*")
	if err != nil || len(scripts) != 6 {
		t.Fatalf("%v, %v", scripts, err)
	}
	for _, script := range scripts {
		command(t, "sh", "-n", script)
	}
}

// What lintian is told to be silent about has the reason in debian/lintian-overrides, and none of it is stale. Small
// programs stand in for flowtally's, which lintian reads for minutes.
func TestLintianFindsNothingInTheDeb(t *testing.T) {
	need.Root(t)
	need.Tool(t, "lintian", "strip", "cc")
	stage := staged(t, "deb")
	source := filepath.Join(t.TempDir(), "main.c")
	if err := os.WriteFile(source, []byte("#include <stdio.h>\nint main(void) { return puts(\"flowtally\") < 0; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"flowtally", "flowtally-plugin"} { // not PIE, and without symbols, as make package makes them
		command(t, "cc", "-O2", "-no-pie", "-s", "-o", filepath.Join(stage, "usr/bin", name), source)
		command(t, "chmod", "0755", filepath.Join(stage, "usr/bin", name))
	}
	library, err := filepath.Glob(filepath.Join(stage, "usr/lib/*/libflowtally.so.0.*"))
	if err != nil || len(library) != 1 {
		t.Fatalf("%v, %v", library, err)
	}
	command(t, "strip", library[0])
	out, err := exec.Command("lintian", "--allow-root", "--fail-on=error,warning", "--tag-display-limit=0", build(t, "deb", stage, "1.0.0")).CombinedOutput()
	if err != nil || strings.Contains(string(out), "unused-override") || strings.Contains(string(out), "mismatched-override") {
		t.Errorf("lintian: %v\n%s", err, out)
	}
}

// rpm installs the package into a root, verifies its files, and leaves nothing when it removes the package.
func TestRPMInstallsVerifiesAndLeavesNothing(t *testing.T) {
	need.Root(t)
	need.Tool(t, "rpm")
	path := build(t, "rpm", small(t, staged(t, "rpm")), "1.0.0")
	if requires := command(t, "rpm", "-qp", "--requires", path); !strings.Contains(requires, "libc.so.6(GLIBC_2.") {
		t.Errorf("requires %s", requires)
	}
	if names := command(t, "rpm", "-qp", "--qf", "[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]", path); strings.Trim(strings.ReplaceAll(names, "root:root", ""), "\n") != "" {
		t.Errorf("owners: %s", names)
	}
	root := t.TempDir()
	rpm := func(args ...string) string {
		t.Helper()
		// Debian's root has no rpm database, and no packages of rpm to depend on.
		return command(t, "rpm", append([]string{"--root", root, "--dbpath", "/var/lib/rpm", "--nodeps", "--noscripts"}, args...)...)
	}
	rpm("--install", "--test", path)
	rpm("--install", path)
	if out, err := exec.Command("rpm", "--root", root, "--dbpath", "/var/lib/rpm", "--verify", "--nodeps", "flowtally").CombinedOutput(); err != nil {
		t.Errorf("rpm --verify: %v\n%s", err, out)
	}
	if config := command(t, "rpm", "-qpc", path); config != "/etc/flowtally.yaml" {
		t.Errorf("configuration files: %s", config)
	}
	rpm("--erase", "flowtally")
	var left []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && (!d.IsDir() || d.Name() == "flowtally") && !strings.HasPrefix(path, root+"/var/lib/rpm") {
			left = append(left, path)
		}
		return err
	})
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestVersionsSortAsTheirCommits(t *testing.T) {
	at := time.Date(2026, 11, 22, 15, 21, 48, 0, time.UTC)
	cases := [][2]string{
		{"v1.2.3-0-gabcdef0", "1.2.3"},
		{"v1.2.3-rc1-0-gabcdef0", "1.2.3~rc1"},
		{"v1.2.3-5-gabcdef0", "1.2.3+20261122152148.gabcdef0"},
		{"v1.2.3-0-gabcdef0-dirty", "1.2.3+20261122152148.gabcdef0.dirty"},
		{"abcdef0", "0.0.0+20261122152148.gabcdef0"},
	}
	for _, c := range cases {
		if got := versionOf(c[0], at); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		return
	}
	sorted := []string{"0.0.0+20261122152148.gabcdef0", "1.2.3~rc1", "1.2.3", "1.2.3+20261122152148.gabcdef0", "1.2.4"}
	for i, v := range slices.Backward(sorted[1:]) {
		command(t, "dpkg", "--compare-versions", sorted[i], "lt", v)
	}
}
