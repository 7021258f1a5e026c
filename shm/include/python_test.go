package include

import (
	"os"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// The reader in Python follows the name after the file was removed while no writer lived,
// and after its writer gave it up.
func TestPythonReaderFollows(t *testing.T) {
	need.Tool(t, "python3")
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	o := shm.Options{Counters: 64, HeartbeatPeriod: patience}
	path, w := newMirror(t, o)
	show(w, add(t, w, shm.Entry{Name: "web"}), value(5))
	p := listen(t, "python3", "../../examples/python-reader/reader.py", "-i", "0.02", path, "web", "nobody")
	p.await("web: 5 packets, 7500 bytes, ")
	p.await("nobody: no counter of that name")
	p.await("writer: alive")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	p.await("writer: not alive")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	o.Path = path
	w, err := shm.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	show(w, add(t, w, shm.Entry{Name: "web"}), value(3))
	p.await("web: 3 packets, 4500 bytes, ")
	w = anew(t, w, o)
	show(w, add(t, w, shm.Entry{Name: "other"}), value(1)) // in the place of the old one
	p.await("web: no counter of that name")
	show(w, add(t, w, shm.Entry{Name: "web"}), value(4))
	p.await("web: 4 packets, 6000 bytes, ")
}

// The core of the reader in Python must fit a page: 80 lines of code.
func TestPythonReaderIsSmall(t *testing.T) {
	text, err := os.ReadFile("../../examples/python-reader/mirror.py")
	if err != nil {
		t.Fatal(err)
	}
	lines, inDoc := 0, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		quotes := strings.Count(line, `"""`)
		if quotes == 0 && !inDoc && line != "" && !strings.HasPrefix(line, "#") {
			lines++
		}
		inDoc = inDoc != (quotes == 1)
	}
	if lines > 80 || lines < 40 {
		t.Errorf("%d lines of code", lines)
	}
	t.Logf("%d lines of code", lines)
}
