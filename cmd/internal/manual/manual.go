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
	Text    string // roff
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

// words returns the words of a command, such as "flowtally flows add", joined by sep.
func words(n *kong.Node, sep string) string {
	return strings.ReplaceAll(usage.CommandPath(n), " ", sep)
}

// files lists the paths for the section FILES of flowtally(1).
var files = []struct{ path, text string }{
	{"/etc/flowtally.yaml", "The configuration that the systemd unit names."},
	{"/run/flowtally/INSTANCE.mirror", "The counters. Every user may read them."},
	{"/run/flowtally-control/INSTANCE.sock", "The control socket of the commands flows and queue-pairs, for root alone."},
	{"/sys/fs/bpf/flowtally/INSTANCE", "Pinned maps and links of an instance."},
}

// overview returns flowtally(1).
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
	for _, f := range files {
		r.item(".I "+escape(f.path), f.text)
	}
	r.seeAlso(app.Name + "(1)")
	return Page{app.Name, 1, r.String()}
}

// command returns the page of one command.
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
		r.children(n)
	}
	if len(n.Positional) > 0 {
		r.section("ARGUMENTS")
		for _, v := range n.Positional {
			r.item(".I "+escape(strings.ToUpper(v.Name)), value(v, ""))
		}
	}

	r.section("FLAGS")
	r.flags(flagsOf(n))
	r.paragraphs("The flags of all commands are in flowtally(1).")
	if examples != "" {
		r.section("EXAMPLES")
		r.paragraphs(examples)
	}
	r.seeAlso(name + "(1)")
	return Page{name, 1, r.String()}
}

// flagsOf returns the flags of a command and of the commands above it, without the common flags.
func flagsOf(n *kong.Node) (flags []*kong.Flag) {
	for p := n; p.Parent != nil; p = p.Parent {
		flags = append(flags, p.Flags...)
	}
	return flags
}

// synopsis returns the required flags of a command, and its arguments.
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

// value returns the help of a flag or an argument, with its environment variables and its default. Without a help it uses
// fallback.
func value(v *kong.Value, fallback string) string {
	help := cmp.Or(v.Help, fallback)
	if len(v.Tag.Envs) > 0 {
		help += " Environment: " + strings.Join(v.Tag.Envs, ", ") + "."
	}
	return help + Default(v)
}

// Default returns a sentence with the default of a flag or an argument. It returns "" if there is none, or if the help
// already mentions it.
func Default(v *kong.Value) string {
	if !v.HasDefault || v.Default == "" || v.IsBool() || strings.Contains(v.Help, "efault") {
		return ""
	}
	return " Default: " + v.Default + "."
}

// roff builds a page in the language of man(7).
type roff struct{ strings.Builder }

// newRoff begins a page. The section NAME gets the first sentence of help.
func newRoff(name string, section int, help string) *roff {
	r := new(roff)
	fmt.Fprintf(r, ".TH %s %d \"\" \"flowtally\" \"flowtally\"\n", strings.ToUpper(escape(name)), section)
	r.section("NAME")
	first := strings.TrimSuffix(strings.SplitAfter(help, ". ")[0], ".")
	r.line(escape(name) + ` \- ` + escape(strings.ToLower(first[:1])+first[1:]))
	return r
}

func (r *roff) line(s string)       { fmt.Fprintln(r, strings.TrimRight(s, " ")) }
func (r *roff) section(name string) { r.line(".SH " + name) }

// text writes one paragraph.
func (r *roff) text(s string) { r.line(guard(escape(strings.Join(strings.Fields(s), " ")))) }

// children writes an item for each command below n.
func (r *roff) children(n *kong.Node) {
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

// item writes an entry of a list. term is a roff request that prints the term.
func (r *roff) item(term, text string) {
	r.line(".TP")
	r.line(term)
	r.text(text)
}

// paragraphs writes paragraphs separated by empty lines. It prints an indented one verbatim.
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

// verbatim writes lines without filling them.
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

// flags writes an item for each flag.
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

// seeAlso lists the other pages, without own.
func (r *roff) seeAlso(own string) {
	r.section("SEE ALSO")
	others := slices.DeleteFunc(slices.Clone(seeAlso), func(s string) bool { return s == own })
	r.line(escape(strings.Join(others, ", ")))
}

// escape escapes text for roff. Without a backslash, roff would turn a minus sign into a hyphen, and a copied flag would
// not work.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "…", "...").Replace(s)
}

// guard protects a line beginning with a dot or a quote, which roff would take for a request.
func guard(s string) string {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		return `\&` + s
	}
	return s
}
