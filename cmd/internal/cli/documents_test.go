package cli

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fenced = regexp.MustCompile("(?ms)^```.*?^```$")
	inline = regexp.MustCompile("`flowtally ([^`]+)`")
)

// These are the commands in running text, with their flags. internal/lab/fence runs the commands in fences.
func TestCommandsOfTheDocumentsExist(t *testing.T) {
	paths, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range append(paths, "../../../README.md") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(fenced.ReplaceAllString(string(data), "")), " ")
		for _, m := range inline.FindAllStringSubmatch(text, -1) {
			line, alternatives, _ := strings.Cut(m[1], `\|`)
			for _, a := range strings.Split(alternatives, `\|`) { // "flows list|add"
				if a != "" {
					parsed(t, filepath.Base(path), line[:strings.LastIndex(line, " ")+1]+a)
				}
			}
			if line[0] >= 'a' && line[0] <= 'z' { // COMMAND stands for any
				found++
				parsed(t, filepath.Base(path), line)
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d commands were found", found)
	}
}

// parsed parses a command line, and fails where the command or a flag does not exist. NAME and the like stand for values.
func parsed(t *testing.T, path, line string) {
	t.Helper()
	line = strings.TrimRight(regexp.MustCompile(`\s*([|>&…#].*|\.\.\.)$`).ReplaceAllString(line, ""), " ,")
	words, err := exec.Command("sh", "-c", "printf '%s\\n' "+line).Output()
	if err != nil {
		t.Errorf("%s: flowtally %s: %v", path, line, err)
		return
	}
	var r root
	parser, err := newParser(&r, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(strings.Split(strings.TrimSpace(string(words)), "\n")); err != nil &&
		(strings.Contains(err.Error(), "unknown ") || strings.Contains(err.Error(), "unexpected ")) {
		t.Errorf("%s: flowtally %s: %v", path, line, err)
	}
}
