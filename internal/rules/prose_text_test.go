package rules

import (
	"bytes"
	"go/scanner"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// prose is a comment, a message or a paragraph, with the number of its first line.
type prose struct {
	line int
	text string
}

var (
	cComment    = regexp.MustCompile(`"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|//([^\n]*)|(?s:/\*(.*?)\*/)`)
	hashComment = regexp.MustCompile(`(?m)(?:^|\s)#+ (.*)$`)
	// quoted is code, a quotation or a name with hyphens inside a text.
	quoted = regexp.MustCompile("`[^`]*`|\"[^\"\n]*\"|\\b\\w+(?:-\\w+)+")
)

// proseOf returns the prose of a file by the extension of its name; nil when the file is generated.
func proseOf(file string, data []byte) []prose {
	if generated(data) {
		return nil
	}
	switch filepath.Ext(file) {
	case ".go":
		return goProse(data, !strings.HasSuffix(file, "_test.go"))
	case ".c", ".h", ".s", ".S", ".proto", ".in", ".map":
		return grouped(data, cComment, false)
	case ".sh", ".py", ".yaml", ".yml", ".service", ".txtar":
		return grouped(data, hashComment, true)
	case ".md":
		return mdProse(data)
	}
	if strings.HasPrefix(file, ".ci/") || filepath.Base(file) == "Makefile" {
		return grouped(data, hashComment, true)
	}
	return nil
}

// goProse returns the comments of a Go file, and with messages the string literals that have a space.
func goProse(data []byte, messages bool) (all []prose) {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(data))
	var s scanner.Scanner
	s.Init(file, data, nil, scanner.ScanComments)
	names := make(map[string]bool)
	last := -1 // the line on which the comment before ended
	for {
		pos, tok, lit := s.Scan()
		line := file.Line(pos)
		switch tok {
		case token.EOF:
			for i := range all {
				first, rest, _ := strings.Cut(strings.TrimSpace(all[i].text), " ")
				if names[first] { // a doc comment begins with the name
					all[i].text = rest
				}
				all[i].text = quoted.ReplaceAllString(all[i].text, "…")
			}
			return all
		case token.IDENT:
			names[lit] = true
		case token.STRING:
			if messages && strings.Contains(lit, " ") {
				all = append(all, prose{line, strings.Trim(lit, "`\"")})
				last = -1
			}
		case token.COMMENT:
			text := strings.TrimPrefix(strings.TrimPrefix(lit, "//"), "/*")
			if line == last+1 {
				all[len(all)-1].text += "\n" + text
			} else {
				all = append(all, prose{line, text})
			}
			last = line + strings.Count(lit, "\n")
		}
	}
}

// grouped returns the comments that re finds; comments on lines that follow one another are one text.
func grouped(data []byte, re *regexp.Regexp, lines bool) (all []prose) {
	last := -1
	for _, m := range re.FindAllSubmatchIndex(data, -1) {
		var text []byte
		for i := 2; i < len(m); i += 2 {
			if m[i] >= 0 {
				text = data[m[i]:m[i+1]]
			}
		}
		if text == nil {
			continue
		}
		line := 1 + bytes.Count(data[:m[0]], []byte("\n"))
		if lines && data[m[0]] == '\n' {
			line++
		}
		clean := quoted.ReplaceAllString(strings.ReplaceAll(string(text), "\n * ", "\n"), "…")
		if line == last+1 {
			all[len(all)-1].text += "\n" + clean
		} else {
			all = append(all, prose{line, clean})
		}
		last = line + strings.Count(clean, "\n")
	}
	return all
}

// mdProse returns the paragraphs of a document without its code.
func mdProse(data []byte) (all []prose) {
	code, open := false, false
	for n, line := range strings.Split(string(data), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			open = false
			continue
		}
		if code || strings.TrimSpace(line) == "" {
			open = false
			continue
		}
		line = quoted.ReplaceAllString(line, "…")
		if open && !strings.HasPrefix(line, "|") {
			all[len(all)-1].text += "\n" + line
		} else {
			all = append(all, prose{n + 1, line})
		}
		open = !strings.HasPrefix(line, "|")
	}
	return all
}

// TestDialectIsFound: the counter sees the patterns in each kind of text, and neither questions nor code.
func TestDialectIsFound(t *testing.T) {
	for _, c := range []struct {
		file, text string
		want       int
	}{
		{"a.go", "package a\n\n// f does what\n// it must.\nfunc f() {}\n", 1},
		{"a.go", "package a\n\n// what does it do?\nvar s = \"what is there\"\n", 1},
		{"a_test.go", "package a\n\nvar s = \"what is there\"\n", 0},
		{"a.go", "package a\n\n// answer returns `what` and \"who\".\nfunc answer() {}\n", 0},
		{"a.go", "package a\n\nvar x = 1 // nobody knows\n", 1},
		{"a.c", "/* A user who asks gets\n * what is\n * left of it. */\nint x; // all that there is\n", 3},
		{"a.sh", "# there are none\necho 'what' # those of root\n", 2},
		{"a.md", "`what` is\nwhat\n\n```\nwhat\n```\n| who |\n", 2},
	} {
		n := 0
		for _, p := range proseOf(c.file, []byte(c.text)) {
			_, all := uses(p)
			n += len(all)
		}
		if n != c.want {
			t.Errorf("%s: %d uses, want %d, in\n%s", c.file, n, c.want, c.text)
		}
	}
}
