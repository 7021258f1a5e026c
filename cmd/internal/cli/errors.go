package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Exit codes.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitDegraded = 3
)

// usageError is a mistake in the command line or in the configuration.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef returns a usageError.
func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// exitError ends the program with a code and no message: what there is to say
// was printed as data.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// hintedError is an error whose next step is known only where it arose.
type hintedError struct {
	err error
	try string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// withHint gives err a next step of its own, in place of the table's.
func withHint(err error, format string, args ...any) error {
	return &hintedError{err, fmt.Sprintf(format, args...)}
}

// report prints err with its next step and returns the exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	if code := exitError(0); errors.As(err, &code) {
		return int(code)
	}
	fmt.Fprintf(stderr, "flowtally: %s\n", strings.TrimRight(err.Error(), "\n"))
	if try := hint(err); try != "" {
		fmt.Fprintf(stderr, "  try: %s\n", try)
	}
	if usage := (*usageError)(nil); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// usageHint is the next step after a command line that could not be parsed.
func usageHint(err error) string {
	var parse *kong.ParseError
	if !errors.As(err, &parse) {
		return ""
	}
	command := "flowtally"
	if parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			command = commandPath(node)
		}
	}
	return command + " --help"
}

// commandPath is the words that call a command. Node.FullPath has its alias among them, in
// parentheses, which no shell takes.
func commandPath(node *kong.Node) string {
	words := []string{node.Name}
	for p := node.Parent; p != nil; p = p.Parent {
		words = append(words, p.Name)
	}
	slices.Reverse(words)
	return strings.Join(words, " ")
}

// nearestCommand adds to a mistake in the command line the command that may have
// been meant where the parser took a default one, and so a name for its argument:
// "flows lst" is "flows list lst" to it.
func nearestCommand(err error) error {
	var parse *kong.ParseError
	if !errors.As(err, &parse) || parse.Context == nil {
		return err
	}
	word, unexpected := strings.CutPrefix(parse.Error(), "unexpected argument ")
	node := parse.Context.Selected()
	if !unexpected || node == nil || node.Parent == nil || node.Parent.DefaultCmd != node {
		return err
	}
	var names []string
	for _, sibling := range node.Parent.Children {
		names = append(names, sibling.Name)
	}
	try := commandPath(node.Parent) + " --help"
	if near := flow.Nearest(word, names); near != "" {
		return withHint(fmt.Errorf("%w, did you mean %q?", err, near), "%s", try)
	}
	return withHint(fmt.Errorf("%w; the commands of %s are %s", err, node.Parent.Name, strings.Join(names, ", ")), "%s", try)
}
