package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// commandLine is the failed command line. It completes the next step below the error.
type commandLine struct {
	args []string
	ctx  *kong.Context // nil if the arguments could not be parsed
}

// Placeholders for the failed command in a next step.
const (
	wordAgain = "AGAIN" // as it was given
	wordSudo  = "SUDO"  // as root
)

// placeholder matches these words.
var placeholder = regexp.MustCompile(`\b(` + wordAgain + `|` + wordSudo + `)\b`)

// nextCommand matches a flowtally command in a next step, at the beginning or after a colon. It ends before a semicolon
// or a comment.
var nextCommand = regexp.MustCompile(`(?:^|: )(flowtally [a-z][^;#]*)`)

// complete turns a next step into one that works when pasted into a shell. It replaces the placeholders by the failed
// command, and repeats the flags by which that command chose its instance in every other flowtally command. A nil line
// has no command to insert, and says "the same command" instead.
func (l *commandLine) complete(try string) string {
	if l == nil {
		return strings.NewReplacer(
			wordAgain+" --", "the same command with --",
			wordAgain, "the same command",
			wordSudo, "the same command as root",
		).Replace(try)
	}

	try = nextCommand.ReplaceAllStringFunc(try, func(m string) string {
		command := strings.TrimRight(m, " ")
		blanks := m[len(command):]
		return command + l.selection(command) + blanks
	})
	return placeholder.ReplaceAllStringFunc(try, func(word string) string {
		if word == wordSudo {
			return l.asRoot()
		}
		return "flowtally" + quoteAll(l.args)
	})
}

// selecting lists the flags that choose an instance, its mirror or its socket.
var selecting = []string{"instance", "mirror", "socket", "owner"}

// selection returns the selecting flags of the failed command, for use with command. It leaves out flags that command
// lacks or sets itself. A choice by an environment variable is not repeated, because the variable applies again.
func (l *commandLine) selection(command string) (flags string) {
	if l.ctx == nil || strings.HasSuffix(command, " --help") {
		return ""
	}

	words := strings.Fields(strings.TrimPrefix(command, ": "))
	node := nodeOf(l.ctx.Model.Node, words[1:])
	for _, name := range selecting {
		if strings.Contains(command, "--"+name) || !hasFlag(node, name) {
			continue
		}
		for _, value := range l.values(name) {
			separator := " "
			if strings.HasPrefix(value, "-") {
				separator = "=" // after a blank, the parser would take it for a flag
			}
			flags += " --" + name + separator + quote(value)
		}
	}
	return flags
}

// nodeOf returns the deepest command named by the first words.
func nodeOf(node *kong.Node, words []string) *kong.Node {
	for _, word := range words {
		i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word })
		if i < 0 {
			break
		}
		node = node.Children[i]
	}
	return node
}

func hasFlag(node *kong.Node, name string) bool {
	return slices.ContainsFunc(slices.Concat(node.AllFlags(true)...), func(f *kong.Flag) bool { return f.Name == name })
}

// values returns the values given for a flag, in any notation.
func (l *commandLine) values(name string) (values []string) {
	for i, arg := range l.args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			values = append(values, value)
		} else if arg == "--"+name && i+1 < len(l.args) {
			values = append(values, l.args[i+1])
		}
	}
	return values
}

// asRoot returns the failed command as root. sudo drops environment variables and searches its own PATH, so the command
// sets our variables and names this program by its path.
func (l *commandLine) asRoot() string {
	var variables []string
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "FLOWTALLY_") && !strings.HasPrefix(v, "FLOWTALLY_DEMO_ISOLATED") {
			variables = append(variables, v)
		}
	}
	slices.Sort(variables)

	command := quote(program()) + quoteAll(l.args)
	if len(variables) > 0 {
		return "sudo env" + quoteAll(variables) + " " + command
	}
	return "sudo " + command
}

// program returns the path of this program.
func program() string {
	if path, err := os.Executable(); err == nil {
		return path
	}
	return "flowtally"
}

// plain matches words that need no quotes in a shell.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote quotes a word for a shell, if it must be quoted.
func quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// quoteAll quotes words for a shell, each after a blank.
func quoteAll(words []string) (line string) {
	for _, word := range words {
		line += " " + quote(word)
	}
	return line
}
