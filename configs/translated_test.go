package configs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/configs"
)

// A line of another tool in a file of configs/translated, an addition of the file, and a flow.
var (
	theirs   = regexp.MustCompile(`^ *#> (.+)`)
	addition = regexp.MustCompile(`^ *#\+ (.+)`)
	ours     = regexp.MustCompile(`^  - \{name: `)
	reason   = regexp.MustCompile(`^#  \S`)
)

// translations returns the files of configs/translated by their names, without the suffix.
func translations(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("translated/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[strings.TrimSuffix(filepath.Base(file), ".yaml")] = string(text)
	}
	return texts
}

// Each line of another tool is translated by the flow below it, or is in the list at the top with the reason why it is
// left out. Each flow translates a line, or is said to be an addition.
func TestEachLineOfAnotherToolIsTranslatedOrLeftOutWithAReason(t *testing.T) {
	type size struct{ left, translated, flows int }
	want := map[string]size{
		"classbench": {left: 2, translated: 32, flows: 25},
		"katran":     {left: 6, translated: 19, flows: 15},
		"nftables":   {left: 11, translated: 32, flows: 33},
		"ovs":        {left: 9, translated: 42, flows: 39},
		"testpmd":    {left: 12, translated: 44, flows: 44},
	}
	texts := translations(t)
	for name := range want {
		if texts[name] == "" {
			t.Errorf("there is no translated/%s.yaml", name)
		}
	}

	for name, text := range texts {
		cfg, err := configs.Load(filepath.Join("translated", name+".yaml"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(cfg.Flows) < 10 || len(cfg.Flows) > 60 {
			t.Errorf("%s has %d flows, want 10 to 60", name, len(cfg.Flows))
		}

		head, flows, _ := strings.Cut(text, "\nflows:\n")
		left := leftOut(t, name, head)
		translated, written := translatedBy(t, name, flows)
		if written != len(cfg.Flows) {
			t.Errorf("%s: %d of %d flows stand on a line of their own", name, written, len(cfg.Flows))
		}
		// A flow that is deleted leaves its line to the flow below it, which only the numbers show.
		if got := (size{left, translated, written}); got != want[name] {
			t.Errorf("%s has %+v, want %+v: if you added or removed a line, change the numbers here", name, got, want[name])
		}
	}
}

// leftOut returns how many lines of the other tool the head of a file leaves out.
func leftOut(t *testing.T, name, head string) (n int) {
	t.Helper()
	lines := strings.Split(head, "\n")
	for i, line := range lines {
		if theirs.MatchString(line) {
			n++
			if i+1 == len(lines) || !reason.MatchString(lines[i+1]) {
				t.Errorf("%s: no reason below the line that is left out: %s", name, line)
			}
		}
	}
	return n
}

// translatedBy returns how many lines of the other tool the flows of a file translate, and how many flows there are.
func translatedBy(t *testing.T, name, text string) (translated, flows int) {
	t.Helper()
	var waiting []string // lines of the other tool, or an addition, without a flow so far
	said := false        // the flow above, or the line above, is of a group that has a line of the other tool
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case theirs.MatchString(line):
			translated++
			waiting = append(waiting, line)
			said = true
		case addition.MatchString(line):
			waiting = append(waiting, line)
			said = true
		case ours.MatchString(line):
			flows++
			waiting = nil
			if !said {
				t.Errorf("%s: the flow has no line of the other tool above it: %s", name, line)
			}
		default:
			said = false
			for _, w := range waiting {
				t.Errorf("%s: no flow below %s", name, w)
			}
			waiting = nil
			if line != "" && !strings.HasPrefix(line, "  # ") {
				t.Errorf("%s: neither a comment nor a flow: %s", name, line)
			}
		}
	}
	for _, w := range waiting {
		t.Errorf("%s: no flow below %s", name, w)
	}
	return translated, flows
}
