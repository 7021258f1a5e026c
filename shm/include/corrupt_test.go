package include

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/shm"
)

// sanitized builds a program that stops at the first fault or undefined
// behaviour. Leaks are not looked for where ptrace is refused.
func sanitized(t *testing.T, program string) string {
	t.Helper()
	return build(t, program, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
}

// However a file is damaged, reading it must return, without a fault.
func TestDamagedMirrorsDoNotCrash(t *testing.T) {
	corrupt := sanitized(t, "corrupt")
	path, w := newMirror(t, shm.Options{Counters: 128, LatencyCounters: 4, History: 32, CoolDown: time.Millisecond})
	furnish(t, w)
	rounds := 5000
	if testing.Short() {
		rounds = 1000
	}
	out := run(t, corrupt, path, strings.TrimSuffix(path, ".mirror")+".device", fmt.Sprint(seed.Uint64(t)), fmt.Sprint(rounds))
	t.Log(strings.TrimSpace(out))
	var done, attached, segments, maps, read int
	if _, err := fmt.Sscanf(out, "rounds %d attached %d segments %d maps %d read %d", &done, &attached, &segments, &maps, &read); err != nil || done != rounds {
		t.Fatalf("printed %q", out)
	}
	// Damage that is always noticed at the door would test nothing behind it.
	if attached < rounds/10 || attached == rounds {
		t.Errorf("%d of %d damaged mirrors were attached", attached, rounds)
	}
	if segments < attached/4 || segments == attached {
		t.Errorf("%d of %d damaged segments were attached", segments, attached)
	}
	if maps < attached/4 || maps == attached || read < attached {
		t.Errorf("%d of %d damaged maps were attached, and %d counters were read in them", maps, attached, read)
	}
}

const headerSize = 65536

// ft_open must refuse files that are no mirrors, each with its own error, and must never hang.
func TestOpenRefusesFilesThatAreNoMirrors(t *testing.T) {
	dump := sanitized(t, "dump")
	path, w := newMirror(t, shm.Options{Counters: 64})
	add(t, w, shm.Entry{Name: "a"})
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	changed := func(at int, b byte) []byte {
		c := append([]byte(nil), whole...)
		c[at] = b
		return c
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := exec.Command("mkfifo", fifo).Run(); err != nil {
		t.Fatal(err)
	}
	foreign := file("foreign", whole)
	owner := "-6"
	if err := os.Chown(foreign, 12345, -1); err != nil {
		owner = "" // not root: the file stays one's own
	}
	for _, tt := range []struct{ name, path, code string }{
		{"absent", filepath.Join(dir, "absent"), "-2"},
		{"link", link, "-4"},
		{"directory", dir, "-5"},
		{"fifo", fifo, "-5"},
		{"another's", foreign, owner},
		{"empty", file("empty", nil), "-7"},
		{"half a header", file("half", whole[:2048]), "-7"},
		{"cut in the history", file("cut", whole[:headerSize+100]), "-7"},
		{"cut in a segment", file("shorter", whole[:len(whole)-1]), "-7"},
		{"not ready", file("unready", changed(8, 0)), "-8"},
		{"no mirror", file("zeros", changed(0, 'X')), "-9"},
		{"other byte order", file("order", changed(12, 1)), "-10"},
		{"later version", file("version", changed(8, 2)), "-11"},
		{"later feature", file("feature", changed(44, 1)), "-12"},
		{"checksum", file("checksum", changed(33, whole[33]^0xff)), "-14"}, // a byte of a random number
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.code == "" {
				need.Missing(t, "root", "a file cannot be given away")
			}
			out, err := exec.CommandContext(t.Context(), dump, tt.path).CombinedOutput()
			where := tt.path
			if tt.name == "cut in a segment" {
				where = "snapshot" // the first that looks there
			}
			if err == nil || !strings.HasPrefix(string(out), where+": "+tt.code+" mirror: ") {
				t.Errorf("got %v, %q; want code %s", err, out, tt.code)
			}
		})
	}
}

// A program that called ft_guard_sigbus must survive when its mapped mirror is cut
// short.
func TestTruncationIsSurvived(t *testing.T) {
	cut := sanitized(t, "cut")
	path, w := newMirror(t, shm.Options{Counters: 128, LatencyCounters: 4, History: 32, CoolDown: time.Millisecond})
	furnish(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out := run(t, cut, path, strings.TrimSuffix(path, ".mirror")+".device")
	if !strings.Contains(out, "survived") {
		t.Errorf("printed %q", out)
	}
}
