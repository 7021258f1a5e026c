package fence

import (
	"fmt"
	"regexp"
	"strings"
)

// Fence is one fenced block of a document.
type Fence struct {
	Line     int    // of the opening mark
	Language string // "" where the info string is empty
	File     string // the text is written to this file
	NotRun   string // why the documents' own test does not run the fence
	Fails    bool   // of the last command
	Until    string // the output of the last command, which stays in the background
	Text     string
}

// Command is one command of a fence, with the output that the document shows.
type Command struct {
	Line   int
	Root   bool
	Text   string
	Output []string
}

var (
	infoWord = regexp.MustCompile(`^(?:fails|file=([\w./-]+)|until="([^"]+)")(?:\s+|$)`)
	prompt   = regexp.MustCompile(`^[$#] `)
	heredoc  = regexp.MustCompile(`<<-?\s*'?"?(\w+)`)
	// likeCommand is a line that a reader takes for a command: a fence without a language has none.
	likeCommand = regexp.MustCompile(`^(?:[$#] |(?:sudo |\w+=\S+ )*(?:\S*flowtally|go|make|curl|apt|dpkg|kubectl|systemctl) [a-z-])`)
)

// Parse returns the fences of a document, and an error for each info string that it cannot read.
func Parse(document string) (fences []Fence, errs []error) {
	var open *Fence
	for i, line := range strings.Split(document, "\n") {
		info, marked := strings.CutPrefix(strings.TrimLeft(line, " "), "```")
		switch {
		case open == nil && marked:
			f, err := parseInfo(info)
			if err != nil {
				errs = append(errs, fmt.Errorf("line %d: %w", i+1, err))
			}
			f.Line = i + 1
			open = &f
		case open != nil && marked && info == "":
			fences = append(fences, *open)
			open = nil
		case open != nil:
			if open.Language == "" && likeCommand.MatchString(line) {
				errs = append(errs, fmt.Errorf("line %d: a fence without a language holds the command %q: begin it with ```console or ```sh", i+1, line))
			}
			open.Text += line + "\n"
		}
	}
	if open != nil {
		errs = append(errs, fmt.Errorf("line %d: the fence does not end", open.Line))
	}
	return fences, errs
}

func parseInfo(info string) (f Fence, err error) {
	f.Language, info, _ = strings.Cut(strings.TrimSpace(info), " ")
	for rest := info; rest != ""; {
		if reason, is := strings.CutPrefix(rest, "not-run:"); is {
			if f.NotRun = strings.TrimSpace(reason); f.NotRun == "" {
				return f, fmt.Errorf("not-run without a reason")
			}
			return f, nil
		}
		m := infoWord.FindStringSubmatch(rest)
		if m == nil {
			return f, fmt.Errorf("info string %q: expected fails, file=NAME, until=\"TEXT\" or not-run: REASON", rest)
		}
		f.Fails = f.Fails || strings.HasPrefix(m[0], "fails")
		f.File += m[1]
		f.Until += m[2]
		rest = rest[len(m[0]):]
	}
	return f, nil
}

// Runs reports whether the fence has something to run or to write.
func (f Fence) Runs() bool {
	return f.NotRun == "" && (f.File != "" || f.Language == "console" || f.Language == "sh")
}

// Commands returns the commands of a fence of language console or sh, also where the fence is not run. A script of
// language sh is one command.
func (f Fence) Commands() (all []Command, err error) {
	switch {
	case f.File != "" || f.Language != "console" && f.Language != "sh":
		return nil, nil
	case f.Language == "sh":
		return []Command{{Line: f.Line + 1, Text: f.Text}}, nil
	}
	lines := strings.Split(strings.TrimSuffix(f.Text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		if !prompt.MatchString(lines[i]) {
			if len(all) == 0 {
				return nil, fmt.Errorf("line %d: %q comes before the first command", f.Line+1+i, lines[i])
			}
			c := &all[len(all)-1]
			c.Output = append(c.Output, lines[i])
			continue
		}
		c := Command{Line: f.Line + 1 + i, Root: lines[i][0] == '#', Text: lines[i][2:]}
		for strings.HasSuffix(lines[i], `\`) && i+1 < len(lines) {
			i++
			c.Text += "\n" + lines[i]
		}
		for end := heredoc.FindStringSubmatch(c.Text); end != nil && i+1 < len(lines); {
			i++
			c.Text += "\n" + lines[i]
			if strings.TrimSpace(lines[i]) == end[1] {
				break
			}
		}
		all = append(all, c)
	}
	return all, nil
}

var (
	address = regexp.MustCompile(`\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b|\b[0-9a-f]{1,4}(?:::?[0-9a-f]{1,4}){2,7}\b|\b[0-9a-f]{32,}\b`)
	// number is a date with its time, or a number with the units behind it.
	number = regexp.MustCompile(`\b(?:0x[0-9a-f]+|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(?:Z|[+-][0-9:]+)?|` +
		`[0-9](?:[0-9,.]*[0-9])?(?:(?:ns|µs|us|ms|s|m|h|d)(?:[0-9.]*[0-9])?)*[kMGT]?(?: ?(?:(?:B|[kKMGT]i?B|[kMGT]?bits?)\b|%))?)(?:/s\b)?`)
	blanks = regexp.MustCompile(`[ \t]+`)
	dashes = regexp.MustCompile(`[-─]{3,}`)
)

// The marks that stand for numbers. Numbers differ from run to run, and their format does not: a program groups the digits
// of a large number by commas, or it does not.
const (
	anyNumber     = "\uE000" // too small to tell
	groupedNumber = "\uE001" // 1,006
	plainNumber   = "\uE002" // 1006
)

var (
	grouped = regexp.MustCompile(`^[0-9]{1,3}(?:,[0-9]{3})+(?:[^0-9,]|$)`)
	plain   = regexp.MustCompile(`^[0-9]{4,}(?:[^0-9-]|$)`) // and no date
)

// like returns the replacer that puts for a number of a document the numbers for which it stands.
func like() *strings.Replacer {
	return strings.NewReplacer(
		anyNumber, "["+anyNumber+groupedNumber+plainNumber+"]",
		groupedNumber, "["+anyNumber+groupedNumber+"]",
		plainNumber, "["+anyNumber+plainNumber+"]",
	)
}

func markOf(number string) string {
	switch {
	case grouped.MatchString(number):
		return groupedNumber
	case plain.MatchString(number):
		return plainNumber
	}
	return anyNumber
}

// simplify replaces the parts of a line that differ from run to run by marks.
func simplify(line string) string {
	line = number.ReplaceAllStringFunc(address.ReplaceAllString(line, "#"), markOf)
	return strings.TrimSpace(blanks.ReplaceAllString(dashes.ReplaceAllString(line, "-"), " "))
}

// Matches reports whether the output is the one that the document shows.
func Matches(shown []string, output string) bool {
	var want, got strings.Builder
	for _, line := range trimEmpty(shown) {
		if strings.TrimSpace(line) == "…" {
			want.WriteString(`(?:.*\n)*?`)
			continue
		}
		for i, part := range strings.Split(line, "…") {
			if i > 0 {
				want.WriteString(" ?.* ?")
			}
			want.WriteString(like().Replace(regexp.QuoteMeta(simplify(part))))
		}
		want.WriteString(`\n`)
	}
	for _, line := range trimEmpty(strings.Split(output, "\n")) {
		got.WriteString(simplify(line) + "\n")
	}
	return regexp.MustCompile(`^` + want.String() + `$`).MatchString(got.String())
}

// trimEmpty removes the empty lines at both ends.
func trimEmpty(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[0]) == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}
