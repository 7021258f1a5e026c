package archive

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// archive stands in for apt: programs on PATH that reply from files of a directory and note
// their arguments in "calls". "version" and "abi" are the content of the lists; a file
// "down" makes every fetch fail, "stale" does until the lists are updated.
func archive(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range map[string]string{
		"apt-cache": `shift 2
case $1 in
meta) echo "Package: meta"; echo "Version: 1"; echo "Depends: linux-base (= 1), linux-image-$(cat abi) (= 1), other" ;;
lib | linux-*) echo "Package: $1"; echo "Version: $(cat version)" ;;
*) echo "E: No packages found" >&2; exit 100 ;;
esac`,
		"apt-get": `if [ "$2" = update ]; then echo update >>calls; rm -f stale; exit 0; fi
echo "download $3" >>calls
if [ -e down ] || [ -e stale ]; then echo "E: 404 Not Found" >&2; exit 100; fi
echo "$3" >"$CALLER/$(echo "$3" | tr = _)_amd64.deb"`,
		"dpkg-deb": `mkdir "$3" && cp "$2" "$3/content"
case $(cat "$2") in linux-image-[56]=*) mkdir "$3/boot" ;; esac`,
	} {
		text := "#!/bin/sh\nexport CALLER=$PWD\ncd '" + dir + "'\n" + script + "\n"
		if name == "dpkg-deb" {
			text = "#!/bin/sh\n" + script + "\n"
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	say(t, dir, "version", "1.0")
	say(t, dir, "abi", "5")
	return dir
}

func say(t *testing.T, dir, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// calls since the last time.
func calls(t *testing.T, dir string) []string {
	t.Helper()
	path := filepath.Join(dir, "calls")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	os.Remove(path)
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func TestCacheFetchesOnlyNewVersionsAndKeepsTheNewest(t *testing.T) {
	apt := archive(t)
	c := Cache{Dir: filepath.Join(t.TempDir(), "cache")}
	updates := []string{"update"} // by root alone
	if os.Geteuid() != 0 {
		updates = nil
	}
	// got asks for a package, and returns the content of its directory.
	got := func(get func() (string, error)) string {
		t.Helper()
		dir, err := get()
		if err != nil {
			return "error: " + err.Error()
		}
		data, err := os.ReadFile(filepath.Join(dir, "content"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	lib := func() (string, error) { return c.Package(t.Context(), "lib") }
	kernel := func() (string, error) {
		dirs, err := c.KernelOf(t.Context(), "meta")
		if err == nil && len(dirs) != 1 {
			t.Errorf("a kernel in one package: %q", dirs)
		}
		return strings.Join(dirs, " "), err
	}
	for _, step := range []struct {
		name  string
		set   func()
		get   func() (string, error)
		want  string
		calls []string
	}{
		{"cold", func() {}, lib, "lib=1.0", []string{"download lib=1.0"}},
		{"warm", func() {}, lib, "lib=1.0", nil},
		{"a metapackage", func() {}, kernel, "linux-image-5=1.0", []string{"download linux-image-5=1.0"}},
		{"a newer one", func() { say(t, apt, "abi", "6") }, kernel, "linux-image-6=1.0", []string{"download linux-image-6=1.0"}},
		{"a newer version", func() { say(t, apt, "version", "1.1") }, lib, "lib=1.1", []string{"download lib=1.1"}},
		{
			"an archive that is down", func() { say(t, apt, "version", "1.2"); say(t, apt, "down", "") }, lib,
			"lib=1.1", slices.Concat([]string{"download lib=1.2"}, updates, []string{"download lib=1.2"}[:len(updates)]),
		},
	} {
		step.set()
		if g := got(step.get); g != step.want {
			t.Errorf("%s: got %q, want %q", step.name, g, step.want)
		}
		if asked := calls(t, apt); !slices.Equal(asked, step.calls) {
			t.Errorf("%s: asked %q, want %q", step.name, asked, step.calls)
		}
	}
	if g := got(func() (string, error) { return c.Package(t.Context(), "none") }); !strings.Contains(g, "package none") || !strings.Contains(g, "apt-get update") {
		t.Errorf("got %q; want an error that names the package and the next step", g)
	}
	os.Remove(filepath.Join(apt, "down"))
	if len(updates) > 0 {
		say(t, apt, "stale", "")
		if g := got(lib); g != "lib=1.2" {
			t.Errorf("lists that are out of date: got %q, want lib=1.2", g)
		}
	} else if g := got(lib); g != "lib=1.2" {
		t.Errorf("got %q, want lib=1.2", g)
	}
	var left []string
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"lib", "lib_1.2", "linux-image-6_1.0", "lock", "meta"}; !slices.Equal(left, want) {
		t.Errorf("the cache holds %q, want %q", left, want)
	}
}

// TestSplitKernelIsFetchedWithItsParts: if the image holds no kernel, its parts come too. A newer kernel removes the parts
// of the older one, and an unreachable archive leaves the newest.
func TestSplitKernelIsFetchedWithItsParts(t *testing.T) {
	apt := archive(t)
	c := Cache{Dir: filepath.Join(t.TempDir(), "cache")}
	parts := func(abi string) (list []string) {
		for _, part := range []string{"binary", "modules", "base"} {
			list = append(list, filepath.Join(c.Dir, "linux-"+part+"-"+abi+"_1.0"))
		}
		return list
	}
	for _, step := range []struct {
		name, file, text string
		want             []string
	}{
		{"cold", "abi", "7-cloud", parts("7-cloud")},
		{"a newer one", "abi", "8-cloud", parts("8-cloud")},
		{"an archive that is down", "down", "", parts("8-cloud")},
	} {
		say(t, apt, step.file, step.text)
		got, err := c.KernelOf(t.Context(), "meta")
		if err != nil || !slices.Equal(got, step.want) {
			t.Errorf("%s: got %q, %v; want %q", step.name, got, err, step.want)
		}
	}
	if old, err := filepath.Glob(filepath.Join(c.Dir, "*-7-cloud_*")); err != nil || len(old) != 0 {
		t.Errorf("the older kernel is still there: %q, %v", old, err)
	}
}

// A suite that cannot be reached is an error with apt's reason, also where its packages are in the cache; a library
// that a package depends on is got with it. apt-cache is asked while no other process can update the lists, and a
// failure of it is an error, not a package without dependencies.
func TestSuiteBringsLibrariesAndFailsWithTheReasonOfApt(t *testing.T) {
	need.Tool(t, "flock")
	dir := t.TempDir()
	c := Cache{Dir: t.TempDir()}
	script := `#!/bin/sh
for last; do :; done
case "$0 $*" in
*apt-cache*) ! flock -n '` + c.Dir + `/next/lock' true || { echo "E: the cache is not locked" >&2; exit 100; } ;;
esac
case "$0 $*" in
*indextargets*) . /etc/os-release; echo "$VERSION_CODENAME main http://archive.example/debian/" ;;
*update) [ ! -e '` + dir + `/down' ] || { echo "E: no route to host" >&2; exit 100; } ;;
*apt-cache*) [ $last != torn ] || { echo "E: no packages found" >&2; exit 100; }
	[ $last = silent ] || echo "Package: $last"; echo "Version: 1.0"; [ $last != tool ] || echo "Depends: libx (>= 1), debconf" ;;
*dpkg-deb*) mkdir "$3" && cp "$2" "$3/content" ;;
*download*) echo "$last" >x.deb; touch "` + dir + `/$last" ;;
esac
`
	for _, name := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	s, err := c.Suite(t.Context(), "next")
	if errors.Is(err, ErrNoArchive) {
		need.Missing(t, "archive", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.WithLibraries(t.Context(), "tool")
	if err != nil || len(got) != 2 || got["tool"] != filepath.Join(c.Dir, "next", "tool_1.0") || got["libx"] == "" {
		t.Errorf("tool and its libraries: %v, %v", got, err)
	}
	if got, err := s.WithLibraries(t.Context(), "torn"); err == nil || !strings.Contains(err.Error(), "no packages found") {
		t.Errorf("a package whose dependencies are not known: %v, %v", got, err)
	}
	if got, err := s.WithLibraries(t.Context(), "silent"); err == nil || !strings.Contains(err.Error(), "shows no package silent") {
		t.Errorf("a package that apt-cache does not show: %v, %v", got, err)
	}
	say(t, dir, "down", "")
	_, err = c.Suite(t.Context(), "next")
	if err == nil || !strings.Contains(err.Error(), "suite next") || !strings.Contains(err.Error(), "no route to host") || strings.Contains(err.Error(), "Dir::") {
		t.Errorf("a suite that cannot be reached: %v", err)
	}
}

func TestSourcesAreFetchedOnceAndAFailedFetchLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	c := Cache{Dir: t.TempDir()}
	script := `#!/bin/sh
echo "$*" >>'` + dir + `/calls'
for last; do :; done
case "$*" in
*indextargets*) . /etc/os-release; echo "$VERSION_CODENAME main http://archive.example/debian/" ;;
*" source "*) [ $last != none ] || { echo "E: Unable to find a source package for none" >&2; exit 100; }
	[ $last != empty ] || exit 0
	mkdir "$last-1.0" && echo text >"$last-1.0/file" && tar -czf "${last}_1.0.orig.tar.gz" "$last-1.0" && touch "${last}_1.0.orig.tar.gz.asc" "${last}_1.0-1.dsc" ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for range 2 {
		got, err := c.Source(t.Context(), "next", "tool")
		if errors.Is(err, ErrNoArchive) {
			need.Missing(t, "archive", err.Error())
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(got, "tool-1.0", "file")); err != nil || string(text) != "text\n" {
			t.Errorf("the sources hold %q, %v", text, err)
		}
	}
	if n := len(calls(t, dir)); n != 3 { // indextargets, update, source
		t.Errorf("%d calls of apt-get, want three: the second time is from the cache", n)
	}
	for name, want := range map[string]string{"none": "Unable to find a source package", "empty": "want an archive of upstream"} {
		if _, err := c.Source(t.Context(), "next", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(c.Dir, "next-src", "fetching-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
