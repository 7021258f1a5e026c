package include

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/internal/lab/golden"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// The kit, as its README.md describes it.
const kit = "../testdata/conformance"

type kitCase struct {
	Steps []struct {
		About string
		Write []struct {
			At  int64
			Hex string
		}
		Length *int64
		Ask    string
		Answer json.RawMessage
		Or     json.RawMessage
	}
}

// driver is a program that replies to the kit's questions.
type driver struct {
	to   io.Writer
	from *bufio.Scanner
}

func startDriver(t *testing.T, name string, args ...string) *driver {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	to, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		to.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	d := &driver{to: to, from: bufio.NewScanner(from)}
	d.from.Buffer(nil, 1<<20)
	return d
}

// ask returns the reply as JSON, numbers by their digits.
func (d *driver) ask(t *testing.T, question string) any {
	t.Helper()
	if _, err := io.WriteString(d.to, question+"\n"); err != nil {
		t.Fatal(err)
	}
	if !d.from.Scan() {
		t.Fatalf("%s: no answer: %v", question, d.from.Err())
	}
	return parse(t, d.from.Bytes())
}

func parse(t *testing.T, b []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return v
}

// The C reader and the Python reader return the results of the conformance kit. A reader that leaves a
// question out returns {"skip": true}.
func TestReadersAnswerTheConformanceKit(t *testing.T) {
	need.Tool(t, "python3")
	python, err := filepath.Abs("../../examples/python-reader/kit.py")
	if err != nil {
		t.Fatal(err)
	}
	c := build(t, "kit")
	files, err := filepath.Glob(kit + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			for name, command := range map[string][]string{"c": {c}, "python": {"python3", python}} {
				t.Run(name, func(t *testing.T) { conform(t, file, command) })
			}
		})
	}
}

func conform(t *testing.T, file string, command []string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var c kitCase
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	f := goldenCopy(t)
	d := startDriver(t, command[0], append(command[1:], f.Name())...)
	asked := 0
	for i, s := range c.Steps {
		if s.Length != nil {
			if err := f.Truncate(*s.Length); err != nil {
				t.Fatal(err)
			}
		}
		for _, w := range s.Write {
			b, err := hex.DecodeString(w.Hex)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(b, w.At); err != nil {
				t.Fatal(err)
			}
		}
		if s.Ask == "" {
			continue
		}
		got, want := d.ask(t, s.Ask), parse(t, s.Answer)
		if cmp.Equal(got, any(map[string]any{"skip": true})) {
			continue
		}
		asked++
		if s.Or != nil && cmp.Equal(got, parse(t, s.Or)) {
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("step %d, %s: -want +got\n%s", i, s.Ask, diff)
		}
	}
	if asked == 0 && len(c.Steps) > 0 {
		t.Errorf("no question was answered")
	}
}

// goldenCopy returns a copy of the golden file.
func goldenCopy(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "kit.mirror"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(golden.Unpack(t, "../testdata/v1.mirror.gz")); err != nil {
		t.Fatal(err)
	}
	return f
}
