package configs_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/configs"
)

//go:generate go test -run TestConfigurationDocumentMatchesTheDecoder -update

// key is one key of the configuration, as the decoder reads it.
type key struct {
	name   string
	values string // that it accepts
	list   bool
	fields []key // of a mapping, or of the elements of a list
}

// problemsOf are the mistakes that Parse finds.
func problemsOf(text string) []configs.Problem {
	_, err := configs.Parse("probe", []byte(text))
	var e *configs.Error
	if errors.As(err, &e) {
		return e.Problems
	}
	return nil
}

// suggestion returns the correction of the mistake whose message matches.
func suggestion(problems []configs.Problem, message string) (string, bool) {
	re := regexp.MustCompile(message)
	for _, p := range problems {
		if re.MatchString(p.Msg) {
			return p.Suggestion, true
		}
	}
	return "", false
}

// schema asks the decoder for the fields of a mapping, by mistakes: an unknown field, and values of no type.
// around writes the mapping at its place in a configuration.
func schema(around func(mapping string) string) (keys []key) {
	const unknown = "zzzzzzzzzzzz"
	fields, _ := suggestion(problemsOf(around("{"+unknown+": 1}")), `has no field ("`+unknown+`"|of ours)`)
	for name := range strings.SplitSeq(strings.TrimPrefix(fields, "its fields are "), ", ") {
		if name == "" {
			continue
		}
		at := func(value string) string { return around("{" + name + ": " + value + "}") }
		k := key{name: name, values: "text"}
		found := problemsOf(at("¤"))
		is := func(message string) (string, bool) { return suggestion(found, message) }
		if _, ok := is(`is a mapping of fields, not`); ok {
			k.values, k.fields = "mapping", schema(at)
		} else if _, ok := is(`is a list, not`); ok {
			k.values, k.list = "list", true
			k.fields = schema(func(mapping string) string { return at("[" + mapping + "]") })
		} else if words, ok := is(`"¤" is not one of its words`); ok {
			k.values = "`" + strings.ReplaceAll(strings.TrimPrefix(words, "use "), ", ", "`, `") + "`"
		} else if _, ok := is(`"¤" is no whole number`); ok {
			bounds, _ := suggestion(problemsOf(at("99999999999999999999")), `is out of range`)
			k.values = strings.TrimPrefix(bounds, "use ")
		} else if _, ok := is(`is true or false`); ok {
			k.values = "`true`, `false`"
		} else if _, ok := is(`"¤" is no duration`); ok {
			k.values = "a duration: `10ms`, `1s`"
		} else if _, ok := is(`is no mode of a file`); ok {
			k.values = "octal: `0644`"
		}
		keys = append(keys, k)
	}
	return keys
}

// explained is the text of default.yaml: the comment above each key, and its default, by "key" and "key.field".
type explained struct{ text, preset map[string]string }

var (
	keyLine  = regexp.MustCompile(`^(  )?#?([a-z_]+):(?: +(.*))?$`)
	rowLine  = regexp.MustCompile(`^#   ([a-z_]+) {2,}(.+)$`)
	moreLine = regexp.MustCompile(`^# {6,}(.+)$`)
	textLine = regexp.MustCompile(`^ *#(?: (.*))?$`)
)

// explanations reads default.yaml. The rows of a comment, "#   name   text", explain the fields of the key below.
func explanations(text string) explained {
	e := explained{make(map[string]string), make(map[string]string)}
	var above []string
	rows, row, parent := make(map[string]string), "", ""
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case line == "":
			above, rows, row = nil, make(map[string]string), ""
		case keyLine.MatchString(line):
			m := keyLine.FindStringSubmatch(line)
			path := m[2]
			if m[1] != "" {
				path = parent + "." + m[2]
			} else {
				parent = path
			}
			if _, twice := e.preset[path]; !twice {
				e.text[path], e.preset[path] = strings.Join(above, " "), m[3]
				for name, text := range rows {
					e.text[path+"."+name] = text
				}
			}
			above, rows, row = nil, make(map[string]string), ""
		case rowLine.MatchString(line):
			m := rowLine.FindStringSubmatch(line)
			row = m[1]
			rows[row] = m[2]
		case row != "" && moreLine.MatchString(line):
			rows[row] += " " + strings.TrimSpace(moreLine.FindStringSubmatch(line)[1])
		case textLine.MatchString(line):
			above = append(above, strings.TrimSpace(textLine.FindStringSubmatch(line)[1]))
			row = ""
		}
	}
	return e
}

// TestConfigurationDocumentMatchesTheDecoder: docs/configuration.md has every key that the decoder reads, with its values, and with
// its default and meaning from default.yaml, which has each of them.
func TestConfigurationDocumentMatchesTheDecoder(t *testing.T) {
	var b strings.Builder
	b.WriteString("<!-- Generated from the decoder and configs/default.yaml: make generate -->\n# Configuration\n\n" +
		"This page is for operators: it lists every key of the configuration file of an instance, with its values and its\n" +
		"default. A key that is left out, or left empty, has its default. [default.yaml](../configs/default.yaml) is a file to\n" +
		"begin with. `flowtally check --config FILE` reports every mistake of a file at once, each with its place and, if\n" +
		"one is likely, a correction.\n")
	e := explanations(string(configs.Sample()))
	keys := schema(func(mapping string) string { return mapping[1 : len(mapping)-1] })
	if len(keys) < 9 {
		t.Fatalf("the decoder has the keys %v", keys)
	}
	for _, k := range keys {
		fmt.Fprintf(&b, "\n## `%s`\n\n%s\n", k.name, wrapped(e.text[k.name]))
		if e.text[k.name] == "" {
			t.Errorf("default.yaml does not explain %s", k.name)
		}
		if len(k.fields) == 0 {
			fmt.Fprintf(&b, "\nValues: %s. Default: %s.\n", k.values, preset(e.preset[k.name]))
			continue
		}
		if k.list {
			b.WriteString("\n| field of an element | values | meaning |\n| --- | --- | --- |\n")
		} else {
			b.WriteString("\n| key | values | default | meaning |\n| --- | --- | --- | --- |\n")
		}
		last := ""
		for _, f := range k.fields {
			path := k.name + "." + f.name
			meaning := e.text[path]
			switch {
			case meaning != "":
				last = f.name
			case k.list && strings.Contains(e.text[k.name], f.name):
				meaning = "see above"
			case last != "" && !k.list:
				meaning = "see `" + last + "`"
			default:
				t.Errorf("default.yaml does not explain %s", path)
			}
			values := f.values
			if len(f.fields) > 0 {
				values += " of " + names(f.fields)
			}
			if !k.list {
				values += " | " + preset(e.preset[path])
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.name, values, strings.ReplaceAll(meaning, "|", "\\|"))
		}
	}
	const path = "../docs/configuration.md"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != b.String() {
		t.Errorf("docs/configuration.md is stale (%v): make generate", err)
	}
}

func names(keys []key) string {
	var all []string
	for _, k := range keys {
		all = append(all, "`"+k.name+"`")
	}
	return strings.Join(all, ", ")
}

func preset(value string) string {
	if value == "" || value == `""` {
		return "none"
	}
	return "`" + value + "`"
}

// wrapped breaks a text into lines of at most 118 characters.
func wrapped(text string) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > 118 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(lines, line), "\n")
}
