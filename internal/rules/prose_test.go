package rules

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// dialect lists the patterns that the comments, messages and documents of this repository avoid.
// cilium/ebpf, bbolt and the standard library hardly use them: TestProseIsPlain prints their figures.
var dialect = []struct {
	name, instead string
	re            *regexp.Regexp
}{
	{"what", "name the noun", regexp.MustCompile(`(?i)\bwhat\b`)},
	{"who", "name the process, the caller or the function", regexp.MustCompile(`(?i)\b(who|whom|whoever|nobody|anybody|somebody|everybody|no one)\b`)},
	{"answer", "a function returns, a peer replies", regexp.MustCompile(`(?i)\banswer(s|ed|ing)?\b`)},
	{"is none", `"does not exist", "is missing"`, regexp.MustCompile(`(?i)\b(is|are|was|were|be) none\b`)},
	{"that of", "repeat the noun", regexp.MustCompile(`(?i)\b(that|those) of\b`)},
	{"of it", "name the object", regexp.MustCompile(`(?i)\b(holds|lies|left|knows?|known|says?|said|made|becomes?|became|nothing|something) of (it|them)\b`)},
	{"all that", "name the objects", regexp.MustCompile(`(?i)\ball (that|there is|it|they)\b`)},
}

// allowed are the sentences that may use a pattern.
var allowed = []struct{ sentence, why string }{}

// found is one use of the dialect.
type found struct {
	line             int
	pattern, instead string
	sentence         string
}

var (
	// question is the rest of a sentence that ends with a question mark.
	question = regexp.MustCompile(`^[^.!?]*\?`)
	// person is a noun before "who" that names a human being.
	person = regexp.MustCompile(`(?i)\b(user|owner|operator|person|people)s?,?\s+$`)
)

// sentenceEnd separates sentences for messages and for the allow list.
var sentenceEnd = regexp.MustCompile(`[.!?:;]\s`)

// uses returns the words of a text and each use of the dialect.
func uses(p prose) (words int, all []found) {
	words = len(strings.Fields(p.text))
	for _, d := range dialect {
		for _, m := range d.re.FindAllStringIndex(p.text, -1) {
			if d.name == "what" && question.MatchString(p.text[m[1]:]) ||
				d.name == "who" && person.MatchString(p.text[:m[0]]) {
				continue
			}
			from := 0
			for _, end := range sentenceEnd.FindAllStringIndex(p.text[:m[0]], -1) {
				from = end[1]
			}
			sentence := p.text[from:]
			if end := sentenceEnd.FindStringIndex(p.text[m[1]:]); end != nil {
				sentence = p.text[from : m[1]+end[0]+1]
			}
			if slices.ContainsFunc(allowed, func(a struct{ sentence, why string }) bool {
				return strings.Contains(sentence, a.sentence)
			}) {
				continue
			}
			all = append(all, found{p.line + strings.Count(p.text[:m[0]], "\n"), d.name, d.instead, strings.Join(strings.Fields(sentence), " ")})
		}
	}
	return words, all
}

type figures struct {
	words int
	by    map[string]int
	uses  int
}

func (f *figures) add(words int, all []found) {
	if f.by == nil {
		f.by = make(map[string]int)
	}
	f.words += words
	f.uses += len(all)
	for _, u := range all {
		f.by[u.pattern]++
	}
}

func (f *figures) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%7d words %5d uses %5.1f", f.words, f.uses, 1000*float64(f.uses)/float64(max(1, f.words)))
	for _, d := range dialect {
		fmt.Fprintf(&b, "  %s %d (%.1f)", d.name, f.by[d.name], 1000*float64(f.by[d.name])/float64(max(1, f.words)))
	}
	return b.String()
}

// TestProseIsPlain finds the patterns of dialect in comments, in the string literals of programs and in
// documents. -v prints the uses for each 1,000 words of a directory or a document, and the same figures
// for the standard library and cilium/ebpf.
func TestProseIsPlain(t *testing.T) {
	root, files := tracked(t)
	rows := make(map[string]*figures)
	total, documents := new(figures), new(figures)
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		row, sum := filepath.Dir(f), total
		if filepath.Ext(f) == ".md" {
			row, sum = f, documents
		}
		for _, p := range proseOf(f, data) {
			if rows[row] == nil {
				rows[row] = new(figures)
			}
			words, all := uses(p)
			rows[row].add(words, all)
			sum.add(words, all)
			for _, u := range all {
				t.Errorf("%s:%d: %s (%s; CONTRIBUTING.md, Plain English): %s", f, u.line, u.pattern, u.instead, u.sentence)
			}
		}
	}
	if total.words < 50_000 || documents.words < 10_000 {
		t.Errorf("only %d words of comments and %d of documents were read", total.words, documents.words)
	}
	if testing.Verbose() {
		for _, row := range slices.Sorted(maps.Keys(rows)) {
			t.Logf("%-30s %v", row, rows[row])
		}
		t.Logf("%-30s %v", "comments and messages", total)
		t.Logf("%-30s %v", "documents", documents)
		anchors(t)
	}
}

// anchors prints the figures of well-kept code.
func anchors(t *testing.T) {
	for _, a := range []struct{ name, list, dir string }{
		{"net", "{{.Dir}}", "net"},
		{"cilium/ebpf", "{{.Module.Dir}}", "github.com/cilium/ebpf"},
		{"pgregory.net/rapid", "{{.Module.Dir}}", "pgregory.net/rapid"},
	} {
		out, err := exec.Command("go", "list", "-f", a.list, a.dir).Output()
		if err != nil {
			t.Fatalf("go list %s: %v", a.dir, err)
		}
		sum := new(figures)
		dir := strings.TrimSpace(string(out))
		err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			data, err := os.ReadFile(path)
			for _, p := range proseOf(path, data) {
				sum.add(uses(p))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("anchor %-23s %v", a.name, sum)
	}
}

// TestPackageCommentsAreShort: longer explanations are in docs/.
func TestPackageCommentsAreShort(t *testing.T) {
	const most = 400
	root, files := tracked(t)
	words := make(map[string]int)
	for _, f := range files {
		if filepath.Ext(f) != ".go" || strings.HasSuffix(f, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, f), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		words[filepath.Dir(f)] += len(strings.Fields(tree.Doc.Text()))
	}
	for _, dir := range slices.Sorted(maps.Keys(words)) {
		if n := words[dir]; n > most {
			t.Errorf("the package comment of %s has %d words", dir, n)
		}
	}
}

// TestDocumentLinesAreShort: a paragraph of a document is wrapped at 120 characters. Rows of tables and
// code blocks cannot be wrapped.
func TestDocumentLinesAreShort(t *testing.T) {
	const most = 120
	root, files := tracked(t)
	for _, f := range files {
		if filepath.Ext(f) != ".md" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		code := false
		for n, line := range strings.Split(string(data), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			if !code && !strings.HasPrefix(line, "|") && utf8.RuneCountInString(line) > most {
				t.Errorf("%s:%d has more than %d characters", f, n+1, most)
			}
		}
	}
}
