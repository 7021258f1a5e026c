package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// commandLine is the command line that failed. It completes the next step below the error.
type commandLine struct {
	args []string
	ctx  *kong.Context // nil if the arguments could not be parsed
}

// Words of a next step that stand for the failed command.
const (
	wordAgain = "AGAIN" // as it was given
	wordSudo  = "SUDO"  // as root
)

// placeholder is one of these words.
var placeholder = regexp.MustCompile(`\b(` + wordAgain + `|` + wordSudo + `)\b`)

// nextCommand is a command of ours in a next step: at its beginning, or after a colon. " # " begins a comment.
var nextCommand = regexp.MustCompile(`(?:^|: )(flowtally [a-z][^;#]*)`)

// complete makes a next step one that works when it is pasted. The failed command takes the place of the words that
// stand for it. Every other command of ours gets the flags by which the failed one chose its instance. A nil line knows
// no command, and names it in words.
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

// selecting are the flags that choose an instance, its mirror or its socket.
var selecting = []string{"instance", "mirror", "socket", "owner"}

// selection returns the selecting flags of the failed command that command has too, and that it does not set itself. An
// environment variable needs no flag: it chooses again.
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
				separator = "=" // behind a blank it would be a flag
			}
			flags += " --" + name + separator + quote(value)
		}
	}
	return flags
}

// nodeOf returns the command that words begin with.
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

// values returns the values that the flag was given.
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

// asRoot returns the failed command as root. sudo hands on no variables, and looks for a name in a PATH of its own: our
// variables and the path of this program stand in the command.
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

// plain is a word that no shell changes.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote writes a word for a shell.
func quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// quoteAll writes words for a shell, each behind a blank.
func quoteAll(words []string) (line string) {
	for _, word := range words {
		line += " " + quote(word)
	}
	return line
}
