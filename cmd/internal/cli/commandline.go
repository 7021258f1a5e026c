package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// commandLine is a command line that was given. A next step acts on the instance that it named.
type commandLine struct {
	args []string
	ctx  *kong.Context // nil if the arguments could not be parsed
}

// Words of a next step that stand for the command that failed.
const (
	wordAgain = "AGAIN" // as it was given
	wordSudo  = "SUDO"  // as root
)

// nextCommand is a command of ours in a next step: at its beginning, or after a colon. The rest after " # " is a comment.
var nextCommand = regexp.MustCompile(`(?:^|: )(flowtally [a-z][^;#]*)`)

// complete makes a next step one that works when it is pasted: the failed command in place of the words that stand for
// it, and in each other command of ours the flags by which the failed one chose its instance.
func (l *commandLine) complete(try string) string {
	if l == nil {
		return strings.NewReplacer(wordAgain+" --", "the same command with --", wordAgain, "the same command", wordSudo, "the same command as root").Replace(try)
	}
	try = nextCommand.ReplaceAllStringFunc(try, func(m string) string {
		command := strings.TrimRight(m, " ")
		return command + l.selection(command) + m[len(command):]
	})
	words := regexp.MustCompile(`\b(` + wordAgain + `|` + wordSudo + `)\b`)
	return words.ReplaceAllStringFunc(try, func(word string) string {
		if word == wordSudo {
			return l.asRoot()
		}
		return "flowtally" + quoteAll(l.args)
	})
}

// selecting are the flags that choose an instance, its mirror or its socket.
var selecting = []string{"instance", "mirror", "socket", "owner"}

// selection returns the flags of the failed command that choose the instance, as far as the other command has them and does
// not choose itself. What an environment variable chose, it chooses again.
func (l *commandLine) selection(command string) (flags string) {
	if l.ctx == nil || strings.HasSuffix(command, " --help") {
		return ""
	}
	node := nodeOf(l.ctx.Model.Node, strings.Fields(strings.TrimPrefix(command, ": "))[1:])
	for _, name := range selecting {
		if strings.Contains(command, "--"+name) || !hasFlag(node, name) {
			continue
		}
		for _, value := range l.values(name) {
			separator := " "
			if strings.HasPrefix(value, "-") {
				separator = "=" // else it is a flag itself
			}
			flags += " --" + name + separator + quote(value)
		}
	}
	return flags
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

// asRoot returns the failed command as root. sudo hands on no variables, and looks for a name in another PATH.
func (l *commandLine) asRoot() string {
	var set []string
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "FLOWTALLY_") && !strings.HasPrefix(v, "FLOWTALLY_DEMO_ISOLATED") {
			set = append(set, v)
		}
	}
	slices.Sort(set)
	if len(set) > 0 {
		return "sudo env" + quoteAll(set) + " " + quote(program()) + quoteAll(l.args)
	}
	return "sudo " + quote(program()) + quoteAll(l.args)
}

func quoteAll(words []string) (line string) {
	for _, word := range words {
		line += " " + quote(word)
	}
	return line
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

// program is this program's path: sudo looks for a name in another PATH than its caller's.
func program() string {
	if path, err := os.Executable(); err == nil {
		return path
	}
	return "flowtally"
}
