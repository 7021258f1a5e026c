package include

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// told is a running testdata/follow.c, which carries out commands.
type told struct {
	t *testing.T
	*lab.Lines
}

func tell(t *testing.T, mirror, name string, env ...string) *told {
	t.Helper()
	cmd := exec.Command(sanitized(t, "follow"), mirror, name) // ends with its input
	cmd.Env = append(os.Environ(), env...)
	p := &told{t, lab.StartLines(t, cmd)}
	if got := p.Next(); got != "0" {
		t.Fatalf("opening: %q", got)
	}
	return p
}

// want sends a command and compares the output.
func (p *told) want(command, want string) {
	p.t.Helper()
	if got := p.Say("%s", command); got != want {
		p.t.Errorf("%s: printed %q, want %q", command, got, want)
	}
}

// Once a file is given up, no function may read it as if it were current, and an ft_named
// continues in the next file of that name.
func TestCSeesAFileThatWasGivenUp(t *testing.T) {
	o := shm.Options{Counters: 64, History: 16, HeartbeatPeriod: patience}
	path, w := newMirror(t, o)
	h := add(t, w, shm.Entry{Name: "web", Kind: "flow"})
	show(w, h, value(1000))
	p := tell(t, path, "web")
	p.want("load", "0 1000")
	p.want("quick", "0 1000")
	p.want("follow", "0")
	p.want("all", "lookup 0 entry 0 counter 0 snapshot 0 cursor 1 fresh 0 wait -24 device -23 status 0 alive 1 replaced 0")
	w = anew(t, w, o)
	p.want("quick", "-15 0")
	p.want("quick", "-15 0")
	p.want("load", "-15 0")
	p.want("all", "lookup -15 entry -15 counter -15 snapshot -15 cursor -15 fresh -15 wait -15 device -23 status 0 alive 0 replaced 1")
	p.want("follow", "2")
	p.want("load", "-16 0") // there is no such counter yet
	show(w, add(t, w, shm.Entry{Name: "other"}), value(1))
	h = add(t, w, shm.Entry{Name: "web"})
	show(w, h, value(7))
	p.want("load", "0 7")
	if err := w.Remove(h); err != nil {
		t.Fatal(err)
	}
	p.want("load", "-16 0")
	show(w, add(t, w, shm.Entry{Name: "web"}), value(9))
	p.want("load", "0 9")
	if err := w.GiveUp(0); err != nil {
		t.Fatal(err)
	}
	p.want("follow", "-15") // no other file has the name yet
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p.want("follow", "-15")
}

// A file removed while no writer lived has no mark, so ft_follow must notice by its inode.
func TestCFollowsAFileWithoutAMark(t *testing.T) {
	o := shm.Options{Counters: 64, HeartbeatPeriod: patience}
	path, w := newMirror(t, o)
	show(w, add(t, w, shm.Entry{Name: "web"}), value(5))
	p := tell(t, path, "web")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p.want("follow", "-2")
	p.want("load", "0 5")
	o.Path = path
	w, err := shm.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	show(w, add(t, w, shm.Entry{Name: "web"}), value(3))
	p.want("load", "0 5")
	p.want("follow", "2")
	p.want("load", "0 3")
	p.want("follow", "0")
}

// ft_open_instance finds the mirror of an instance, and prefers that of a living writer to
// a file left by a dead one.
func TestCFindsTheInstanceWhoseWriterLives(t *testing.T) {
	name := fmt.Sprintf("flowtally-c-%d", os.Getpid())
	user := t.TempDir()
	put := func(dir string, n uint64) *shm.Writer {
		t.Helper()
		w, err := shm.Create(shm.Options{Path: filepath.Join(dir, name+".mirror"), Counters: 64, HeartbeatPeriod: patience})
		if err != nil {
			need.Missing(t, "shm", err.Error())
		}
		t.Cleanup(func() {
			w.Close()
			for _, suffix := range []string{".mirror", ".lock", ".wait"} {
				os.Remove(filepath.Join(dir, name+suffix))
			}
		})
		show(w, add(t, w, shm.Entry{Name: "web"}), value(n))
		return w
	}
	if err := put("/dev/shm/flowtally", 1).Close(); err != nil {
		t.Fatal(err)
	}
	p := tell(t, name, "web", "XDG_RUNTIME_DIR="+user)
	p.want("load", "0 1")
	if err := os.Mkdir(filepath.Join(user, "flowtally"), 0o755); err != nil {
		t.Fatal(err)
	}
	w := put(filepath.Join(user, "flowtally"), 2)
	p.want("follow", "2")
	p.want("load", "0 2")
	p.want("follow", "0")
	if err := w.Close(); err != nil { // both are dead: the first is the one
		t.Fatal(err)
	}
	p.want("follow", "2")
	p.want("load", "0 1")
}
