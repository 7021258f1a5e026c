package manual

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/flowtally/flowtally/cmd/internal/usage"
)

// Page is one man page.
type Page struct {
	Name    string // "flowtally-flows-add"
	Section int
	Text    string // in the language of man(7)
}

// File returns the path of the page below a directory of man pages: "man1/flowtally.1".
func (p Page) File() string { return fmt.Sprintf("man%d/%s.%d", p.Section, p.Name, p.Section) }

// seeAlso ends each page.
var seeAlso = []string{"flowtally(1)", "flowtally.yaml(5)", "flowtally-plugin(8)"}

// Pages returns the pages of a command line and of its configuration file.
func Pages(app *kong.Application, configuration string) []Page {
	pages := []Page{overview(app), configurationPage(configuration), plugin()}
	_ = kong.Visit(app.Node, func(v kong.Visitable, next kong.Next) error {
		if n, ok := v.(*kong.Node); ok && n.Type == kong.CommandNode {
			if n.Hidden {
				return nil
			}
			pages = append(pages, command(n))
		}
		return next(nil)
	})
	return pages
}

// words are the words that call a command, joined by sep.
func words(n *kong.Node, sep string) string {
	return strings.ReplaceAll(usage.CommandPath(n), " ", sep)
}

// overview is flowtally(1).
func overview(app *kong.Application) Page {
	r := newRoff(app.Name, 1, "count network flows and mirror the counts into shared memory")
	r.section("SYNOPSIS")
	r.line(".B " + app.Name)
	r.text("COMMAND [FLAG]… [ARGUMENT]…")
	r.section("DESCRIPTION")
	r.paragraphs(app.Help)
	r.section("COMMANDS")
	for _, n := range app.Leaves(true) {
		r.item(".BR "+strings.ReplaceAll(words(n, "-"), "-", `\-`)+" (1)", n.Help)
	}
	r.section("FLAGS OF ALL COMMANDS")
	r.flags(app.Flags)
	r.section("FILES")
	for _, f := range [][2]string{
		{"/etc/flowtally.yaml", "The configuration that the systemd unit names."},
		{"/run/flowtally/INSTANCE.mirror", "The counters. Every user may read them."},
		{"/run/flowtally-control/INSTANCE.sock", "The control socket of the commands flows and queue-pairs, for root alone."},
		{"/sys/fs/bpf/flowtally/INSTANCE", "Pinned maps and links of an instance."},
	} {
		r.item(".I "+escape(f[0]), f[1])
	}
	r.seeAlso(app.Name + "(1)")
	return Page{app.Name, 1, r.String()}
}

// command is the page of one command.
func command(n *kong.Node) Page {
	name := words(n, "-")
	r := newRoff(name, 1, n.Help)
	r.section("SYNOPSIS")
	r.line(".B " + escape(words(n, " ")))
	r.text(synopsis(n))
	r.section("DESCRIPTION")
	r.paragraphs(n.Help)
	if len(n.Aliases) > 0 {
		r.paragraphs("The command is also called " + strings.Join(n.Aliases, " or ") + ".")
	}
	text, examples, _ := strings.Cut(n.Detail, "Examples:")
	r.paragraphs(text)
	if len(n.Children) > 0 {
		r.section("COMMANDS")
		for _, child := range n.Children {
			if child.Hidden {
				continue
			}
			help := child.Help
			if n.DefaultCmd == child {
				help += " This command is run if no other one is named."
			}
			r.item(".BR "+escape(words(child, "-"))+" (1)", help)
		}
	}
	if len(n.Positional) > 0 {
		r.section("ARGUMENTS")
		for _, v := range n.Positional {
			r.item(".I "+escape(strings.ToUpper(v.Name)), value(v, ""))
		}
	}
	var flags []*kong.Flag
	for p := n; p.Parent != nil; p = p.Parent {
		flags = append(flags, p.Flags...)
	}
	r.section("FLAGS")
	r.flags(flags)
	r.paragraphs("The flags of all commands are in flowtally(1).")
	if examples != "" {
		r.section("EXAMPLES")
		r.paragraphs(examples)
	}
	r.seeAlso(name + "(1)")
	return Page{name, 1, r.String()}
}

// synopsis are the flags that a command cannot do without, and its arguments.
func synopsis(n *kong.Node) string {
	var parts []string
	for _, f := range n.Flags {
		if f.Required {
			parts = append(parts, f.Summary())
		}
	}
	parts = append(parts, "[FLAG]…")
	if len(n.Children) > 0 && len(n.Positional) == 0 {
		parts = append(parts, "COMMAND")
	}
	for _, v := range n.Positional {
		word := strings.ToUpper(v.Name)
		if !v.Required {
			word = "[" + word + "]"
		}
		if v.IsCumulative() {
			word += "…"
		}
		parts = append(parts, word)
	}
	return strings.Join(parts, " ")
}

// value is the help of a flag or an argument, with its environment variables and its default.
func value(v *kong.Value, fallback string) string {
	help := cmp.Or(v.Help, fallback)
	if len(v.Tag.Envs) > 0 {
		help += " Environment: " + strings.Join(v.Tag.Envs, ", ") + "."
	}
	return help + Default(v)
}

// Default returns the words that tell the default of a flag or an argument, or "" where there is none or the help tells it.
func Default(v *kong.Value) string {
	if !v.HasDefault || v.Default == "" || v.IsBool() || strings.Contains(v.Help, "efault") {
		return ""
	}
	return " Default: " + v.Default + "."
}

// roff is a page that is being written.
type roff struct{ strings.Builder }

func newRoff(name string, section int, help string) *roff {
	r := new(roff)
	fmt.Fprintf(r, ".TH %s %d \"\" \"flowtally\" \"flowtally\"\n", strings.ToUpper(escape(name)), section)
	r.section("NAME")
	help = strings.TrimSuffix(strings.SplitAfter(help, ". ")[0], ".")
	r.line(escape(name) + ` \- ` + escape(strings.ToLower(help[:1])+help[1:]))
	return r
}

func (r *roff) line(s string)       { fmt.Fprintln(r, strings.TrimRight(s, " ")) }
func (r *roff) section(name string) { r.line(".SH " + name) }

// text writes one paragraph, whose lines cannot be read as requests.
func (r *roff) text(s string) { r.line(guard(escape(strings.Join(strings.Fields(s), " ")))) }

// item writes an entry of a list: a request that prints its term, and its text.
func (r *roff) item(term, text string) {
	r.line(".TP")
	r.line(term)
	r.text(text)
}

// paragraphs writes text whose paragraphs are separated by empty lines. An indented one is printed as it is.
func (r *roff) paragraphs(s string) {
	for p := range strings.SplitSeq(s, "\n\n") {
		switch {
		case strings.TrimSpace(p) == "":
		case strings.HasPrefix(strings.TrimLeft(p, "\n"), "  "):
			r.verbatim(strings.TrimSpace(p))
		default:
			r.line(".PP")
			r.text(p)
		}
	}
}

// verbatim writes lines that are not filled.
func (r *roff) verbatim(s string) {
	r.line(".PP")
	r.line(".RS 4")
	r.line(".nf")
	for l := range strings.SplitSeq(s, "\n") {
		r.line(guard(escape(l)))
	}
	r.line(".fi")
	r.line(".RE")
}

func (r *roff) flags(flags []*kong.Flag) {
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		name := "--" + f.Name
		if f.Short != 0 {
			name = fmt.Sprintf("-%c, %s", f.Short, name)
		}
		if f.Tag.Negatable != "" {
			name = strings.Replace(name, "--", "--[no-]", 1)
		}
		if !f.IsBool() && !f.IsCounter() {
			name += "=" + f.FormatPlaceHolder()
		}
		r.item(".B "+escape(name), value(f.Value, "Show help."))
	}
}

// seeAlso names the other pages.
func (r *roff) seeAlso(own string) {
	r.section("SEE ALSO")
	others := slices.DeleteFunc(slices.Clone(seeAlso), func(s string) bool { return s == own })
	r.line(escape(strings.Join(others, ", ")))
}

// escape hands text on as it is: roff reads backslashes, and a minus sign that is to be copied has one.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "…", "...").Replace(s)
}

// guard keeps a line that starts with a control character from being read as a request.
func guard(s string) string {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		return `\&` + s
	}
	return s
}
