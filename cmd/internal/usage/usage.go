// Package usage explains mistakes in the command line: the likely meaning, and the next step.
package usage

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/flowtally/flowtally/internal/spelling"
)

// Hint returns the next step after an error of the parser, or "" for any other error.
func Hint(err error) string {
	var parse *kong.ParseError
	if !errors.As(err, &parse) {
		return ""
	}
	command := "flowtally"
	if parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			command = CommandPath(node)
		}
	}
	return command + " --help"
}

// CommandPath returns the words of a command, such as "flowtally flows add". Node.FullPath would add aliases in
// parentheses, so its result does not work in a shell.
func CommandPath(node *kong.Node) string {
	words := []string{node.Name}
	for p := node.Parent; p != nil; p = p.Parent {
		words = append(words, p.Name)
	}
	slices.Reverse(words)
	return strings.Join(words, " ")
}

// elsewhere maps words of other tools to our commands with the same purpose.
var elsewhere = map[string]string{
	"help": "--help", "ls": "flows list", "show": "get", "start": "run", "status": "flows list", "stats": "get",
}

// Error is a mistake with a next step of its own.
type Error struct {
	Err error
	Try string // the next step
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func withHint(err error, format string, args ...any) error {
	return &Error{err, fmt.Sprintf(format, args...)}
}

// Explain adds to an error of the parser what the user probably meant. It returns an *Error if it knows a next step.
func Explain(err error) error {
	var parse *kong.ParseError
	if !errors.As(err, &parse) || parse.Context == nil {
		return err
	}
	text, _, suggested := strings.Cut(parse.Error(), ", did you mean")
	if word, ok := strings.CutPrefix(text, "unexpected argument "); ok {
		return unexpectedArgument(err, parse.Context, text, word)
	}
	if m := negative.FindStringSubmatch(text); m != nil && takesNumber(parse.Context, m[1]) {
		// The parser suggests --at-least="-5", which would be the next error.
		return withHint(fmt.Errorf("--%s: %s is below 0", m[1], m[2]), "%s", Hint(err))
	}
	if name, ok := strings.CutPrefix(text, "unknown flag --"); ok && !suggested {
		return unknownFlag(err, parse.Context, name)
	}
	return err
}

// negative matches the parser's error for a value below 0.
var negative = regexp.MustCompile(`^--([a-z-]+): expected .* but got "(-[0-9][^"]*)"`)

// takesNumber reports whether a flag takes a number or a duration. None of our flags accepts a negative one.
func takesNumber(ctx *kong.Context, name string) bool {
	node := ctx.Selected()
	if node == nil {
		node = ctx.Model.Node
	}
	for _, flags := range node.AllFlags(false) {
		for _, f := range flags {
			if f.Name != name {
				continue
			}
			kind := f.Target.Type()
			for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
				kind = kind.Elem()
			}
			return kind.Kind() >= reflect.Int && kind.Kind() <= reflect.Float64
		}
	}
	return false
}

// unexpectedArgument suggests the command that the user probably meant. The parser's own suggestion is worse, because it
// does not look into subcommands.
func unexpectedArgument(err error, ctx *kong.Context, text, word string) error {
	node := ctx.Selected()
	switch {
	case node == nil:
		node = ctx.Model.Node
	case node.Parent != nil && node.Parent.DefaultCmd == node:
		// The parser chose the default command and took the word for its argument: it reads "flows lst" as
		// "flows list lst".
		node = node.Parent
	case CommandPath(node) == "flowtally flows add":
		return unquotedMatch(err, ctx, word)
	default:
		return err
	}

	try := CommandPath(node) + " --help"
	if near := nearestCommand(node, word); near != "" {
		return withHint(fmt.Errorf("%s, did you mean %q?", text, near), "%s", try)
	}
	return withHint(fmt.Errorf("%s; the commands of %s are %s", text, node.Name, strings.Join(commandsOf(node), ", ")), "%s", try)
}

// nearestCommand returns the command below node that the user probably meant by word, or "". It also knows words of other
// tools, unless node has a command of exactly that name.
func nearestCommand(node *kong.Node, word string) string {
	if near := spelling.Nearest(word, commandsOf(node)); near == word || near != "" && elsewhere[word] == "" {
		return near
	}
	if node.Parent != nil {
		return ""
	}

	if command := elsewhere[word]; command != "" {
		return command
	}
	for _, child := range node.Children {
		if near := spelling.Nearest(word, commandsOf(child)); near != "" {
			return child.Name + " " + near
		}
	}
	return ""
}

func commandsOf(node *kong.Node) (names []string) {
	for _, child := range node.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	return names
}

// unquotedMatch suggests quoting the match of flows add, because the shell has split it into words.
func unquotedMatch(err error, ctx *kong.Context, word string) error {
	var given []string
	for _, p := range ctx.Path {
		if p.Positional != nil {
			given = append(given, ctx.Value(p).String())
		}
	}
	at := slices.Index(ctx.Args, word)
	if len(given) != 2 || at < 0 {
		return err
	}

	name, match := given[0], given[1]
	for _, more := range ctx.Args[at:] {
		if strings.HasPrefix(more, "-") {
			break
		}
		match += " " + more
	}
	return withHint(fmt.Errorf("%w: the match is one argument, so quote it", err), "flowtally flows add %s '%s'", name, match)
}

// unknownFlag suggests a flag with this value: for --json it suggests --output json.
func unknownFlag(err error, ctx *kong.Context, name string) error {
	node := ctx.Selected()
	if node == nil {
		return err
	}
	for _, flags := range slices.Backward(node.AllFlags(true)) { // the command's own first
		for _, f := range flags {
			if f.Enum == "" {
				continue
			}
			if near := spelling.Nearest(name, strings.Split(f.Enum, ",")); near != "" {
				return fmt.Errorf("%w, did you mean \"--%s %s\"?", err, f.Name, near)
			}
		}
	}
	return err
}
