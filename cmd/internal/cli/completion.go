package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// completionCmd prints the shim that a shell sources. The shim calls "flowtally __complete --
// WORDS…" with the words up to the cursor.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: ${enum}."`
}

var completionScripts = map[string]string{
	// Bash breaks words at ":" and "=", which names and flags contain: the line is split at blanks
	// instead, and the part before the break is cut off again.
	"bash": `# flowtally: source <(flowtally completion bash)
_flowtally() {
	local IFS=$' \t\n' line="${COMP_LINE:0:COMP_POINT}" cur="${COMP_WORDS[COMP_CWORD]}" words
	read -ra words <<<"$line"
	[[ "$line" == *[[:blank:]] ]] && words+=("")
	[[ "$cur" == [:=] ]] && cur=""
	local before="${words[-1]%"$cur"}"
	IFS=$'\n'
	COMPREPLY=($("${words[0]}" __complete -- "${words[@]:1}" 2>/dev/null))
	COMPREPLY=("${COMPREPLY[@]#"$before"}")
}
complete -o default -F _flowtally flowtally
`,
	// Zsh runs the file as the function at the first completion when it found it in fpath.
	"zsh": `#compdef flowtally
# flowtally: source <(flowtally completion zsh)
_flowtally() {
	local -a found
	found=("${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "${found[*]}" ]]; then compadd -a found; else _files; fi
}
if [[ "${funcstack[1]}" == _flowtally ]]; then _flowtally "$@"; else compdef _flowtally flowtally; fi
`,
	// Fish drops an empty word unless it is quoted.
	"fish": `# flowtally: flowtally completion fish | source
function __flowtally_complete
	set -l words (commandline -opc)
	set -l cur (commandline -ct)
	set -l found (flowtally __complete -- $words[2..] "$cur" 2>/dev/null)
	if set -q found[1]
		string join \n -- $found
	else
		__fish_complete_path "$cur"
	end
end
complete -c flowtally -f -a '(__flowtally_complete)'
`,
}

func (c *completionCmd) Run(env *Env) error {
	_, err := fmt.Fprint(env.Stdout, completionScripts[c.Shell])
	return err
}

// completeCmd prints the completions of the last of its words, one a line.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

func (c *completeCmd) Run(env *Env) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	for _, s := range complete(env.model.Node, words) {
		if format.Printable(s) == s { // a shell would take it for its own
			fmt.Fprintln(env.Stdout, s)
		}
	}
	return nil
}

// complete walks the model along the words before the last, and returns the candidates for the
// last.
func complete(node *kong.Node, words []string) []string {
	before, last := words[:len(words)-1], words[len(words)-1]
	given := map[string]string{} // values of flags that candidates depend on
	args := 0
	var pending *kong.Flag // a flag that waits for its value
	for _, w := range before {
		switch {
		case pending != nil:
			given[pending.Name], pending = w, nil
		case strings.HasPrefix(w, "-"):
			name, value, hasValue := strings.Cut(w, "=")
			if f := findFlag(node, name); f != nil {
				given[f.Name] = value
				if !hasValue && !f.IsBool() {
					pending = f
				}
			}
		default:
			if child := findChild(node, w); child != nil {
				node, args = child, 0
			} else {
				args++
			}
		}
	}
	var out []string
	name, value, hasValue := strings.Cut(last, "=")
	switch {
	case pending != nil:
		out = valuesOf(pending.Value, given)
	case strings.HasPrefix(last, "-") && hasValue:
		if f := findFlag(node, name); f != nil {
			for _, v := range valuesOf(f.Value, given) {
				if strings.HasPrefix(v, value) {
					out = append(out, name+"="+v)
				}
			}
		}
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				out = append(out, "--"+f.Name)
			}
		}
	case len(node.Children) > 0:
		for _, child := range node.Children {
			if !child.Hidden {
				out = append(out, child.Name)
			}
		}
	case len(node.Positional) > 0:
		p := node.Positional[min(args, len(node.Positional)-1)]
		if args < len(node.Positional) || p.IsCumulative() {
			out = valuesOf(p, given)
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return !strings.HasPrefix(s, last) })
}

func findChild(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name || slices.Contains(child.Aliases, name) {
			return child
		}
	}
	return nil
}

func findFlag(node *kong.Node, name string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

// valuesOf returns the values of a flag or an argument: the words of its enum, or of the source
// that its tag "complete" names.
func valuesOf(v *kong.Value, given map[string]string) []string {
	if v.Enum != "" {
		return slices.DeleteFunc(v.EnumSlice(), func(s string) bool { return s == "" })
	}
	switch v.Tag.Get("complete") {
	case "interfaces":
		return interfaceNames()
	case "counters":
		return fromMirror(given, counterNames)
	case "labels":
		return fromMirror(given, labelChoices)
	case "label-keys":
		return fromMirror(given, labelKeys)
	case "queue-pairs":
		return queuePairNames(given)
	}
	return nil
}

// fromMirror returns the choices that the catalogue of a mirror gives: of the mirror that the flags given so far or
// the environment name; none where it cannot be read.
func fromMirror(given map[string]string, choices func([]shm.Entry) []string) []string {
	var f readerFlag
	f.Mirror = cmp.Or(given["mirror"], os.Getenv("FLOWTALLY_MIRROR"))
	if f.Instance.UnmarshalText([]byte(cmp.Or(given["instance"], os.Getenv("FLOWTALLY_INSTANCE")))) != nil {
		return nil
	}
	m, err := openMirror(f)
	if err != nil {
		return nil
	}
	defer m.close()
	entries, _ := m.reader.Entries()
	return choices(entries)
}

// counterNames returns the names of counters.
func counterNames(entries []shm.Entry) []string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name
	}
	return names
}

// labelChoices returns the keys of all labels, and the labels as KEY=VALUE.
func labelChoices(entries []shm.Entry) []string {
	return append(labelKeys(entries), labelTexts(entries)...)
}

// queuePairNames returns the queue pairs of the running instance that the flags given so far or the
// environment name; no names if it does not reply soon.
func queuePairNames(given map[string]string) []string {
	s := socketFlag{Socket: cmp.Or(given["socket"], os.Getenv("FLOWTALLY_SOCKET"))}
	if s.Instance.UnmarshalText([]byte(cmp.Or(given["instance"], os.Getenv("FLOWTALLY_INSTANCE")))) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var names []string
	_ = s.with(&Env{Context: ctx}, func(svc dataplane.Service) error {
		pairs, err := svc.QueuePairs().List(ctx)
		for _, q := range pairs {
			names = append(names, q.Name)
		}
		return err
	})
	return names
}

// interfaceNames returns the network interfaces; none where they cannot be listed.
func interfaceNames() []string {
	links, _ := net.Interfaces()
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = l.Name
	}
	return names
}
