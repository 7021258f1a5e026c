package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// unpacked is a member as the kernel reads it.
type unpacked struct {
	Name         string
	Mode         uint32
	Ino, Nlink   uint32
	Major, Minor uint32
	Body         string
}

// unpack reads an archive as init/initramfs.c does: header, name and body each begin at a multiple
// of 4, and every number is 8 hexadecimal digits.
func unpack(archive []byte) (members []unpacked, err error) {
	at := 0
	take := func(n int) []byte {
		if err == nil && at+n > len(archive) {
			err = fmt.Errorf("the archive ends at %d, and %d more are read from %d on", len(archive), n, at)
		}
		if err != nil {
			return make([]byte, n)
		}
		at += n
		return archive[at-n : at]
	}
	for err == nil {
		if magic := string(take(6)); err == nil && magic != "070701" {
			return nil, fmt.Errorf("magic %q at %d", magic, at-6)
		}
		var f [13]uint32
		for i := range f {
			n, bad := strconv.ParseUint(string(take(8)), 16, 32)
			if err == nil {
				err = bad
			}
			f[i] = uint32(n)
		}
		if f[11] == 0 || f[11] > 4096 {
			return nil, fmt.Errorf("a name of %d bytes", f[11])
		}
		name, ok := strings.CutSuffix(string(take(int(f[11]))), "\x00")
		if !ok && err == nil {
			return nil, errors.New("a name without its end")
		}
		take(-at & 3)
		if name == "TRAILER!!!" {
			return members, err
		}
		m := unpacked{Name: name, Ino: f[0], Mode: f[1], Nlink: f[4], Major: f[9], Minor: f[10], Body: string(take(int(f[6])))}
		take(-at & 3)
		members = append(members, m)
	}
	return nil, err
}

// TestArchiveUnpacksToItsFiles writes random images and reads them as the kernel would.
func TestArchiveUnpacksToItsFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		img := NewImage()
		want := make(map[string]string)
		for range rapid.IntRange(0, 12).Draw(t, "files") {
			name := rapid.StringMatching(`/(etc|opt/[a-c]|lib|bin|usr/lib)/[a-z]{1,9}`).Draw(t, "name")
			body := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "body")
			img.Bytes(name, body, 0o644)
			want[place(name)] = string(body)
		}
		var b bytes.Buffer
		if err := img.Write(&b); err != nil {
			t.Fatal(err)
		}
		members, err := unpack(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		got, there, inodes := make(map[string]string), map[string]bool{".": true}, make(map[uint32]bool)
		for _, m := range members {
			if !there[path.Dir(m.Name)] {
				t.Fatalf("%s comes before its directory", m.Name)
			}
			if inodes[m.Ino] {
				t.Fatalf("%s has the inode of another: it would be a link to it", m.Name)
			}
			inodes[m.Ino] = true
			switch m.Mode & typeMask {
			case typeDir:
				there[m.Name] = true
			case typeFile:
				got[m.Name] = m.Body
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestImageHasFilesLinksAndDevicesInTheirPlaces(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host")
	if err := os.WriteFile(host, []byte("of this machine"), 0o600); err != nil {
		t.Fatal(err)
	}
	img := NewImage()
	img.File(host, "/init", 0o755)
	img.File(host, "/lib/x86_64-linux-gnu/libx.so.1", 0o644)
	img.Symlink("libx.so.1", "/usr/lib/x86_64-linux-gnu/libx.so")
	var first, second bytes.Buffer
	if err := errors.Join(img.Write(&first), img.Write(&second)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same image makes two archives")
	}
	members, err := unpack(first.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []unpacked{
		{Name: "init", Mode: 0o100755, Nlink: 1, Body: "of this machine"},
		{Name: "lib", Mode: 0o120777, Nlink: 1, Body: "usr/lib"},
		{Name: "usr/lib/x86_64-linux-gnu", Mode: 0o040755, Nlink: 2},
		{Name: "usr/lib/x86_64-linux-gnu/libx.so.1", Mode: 0o100644, Nlink: 1, Body: "of this machine"},
		{Name: "usr/lib/x86_64-linux-gnu/libx.so", Mode: 0o120777, Nlink: 1, Body: "libx.so.1"},
		{Name: "dev/console", Mode: 0o020600, Nlink: 1, Major: 5, Minor: 1},
	} {
		i := slices.IndexFunc(members, func(m unpacked) bool { return m.Name == want.Name })
		if i < 0 {
			t.Errorf("%s is not in the archive", want.Name)
			continue
		}
		want.Ino = members[i].Ino
		if diff := cmp.Diff(want, members[i]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestImageRefusesFilesThatItCannotHold(t *testing.T) {
	dir := t.TempDir()
	for name, host := range map[string]string{"no such file": filepath.Join(dir, "none"), "a directory": dir} {
		img := NewImage()
		img.File(host, "/etc/x", 0o644)
		if err := img.Write(io.Discard); err == nil || !strings.Contains(err.Error(), "etc/x") {
			t.Errorf("%s: %v; want an error that names etc/x", name, err)
		}
	}
	grown := &cpioWriter{w: io.Discard}
	if err := grown.add(cpioEntry{name: "x", mode: typeFile, size: 2, body: strings.NewReader("abc")}); err == nil {
		t.Error("a file that grew while it was read was taken")
	}
	if err := grown.add(cpioEntry{name: "x", mode: typeFile, size: 1 << 32}); err == nil {
		t.Error("a file of 4 GiB was taken")
	}
}
