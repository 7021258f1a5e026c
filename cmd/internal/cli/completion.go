package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/flowtally/flowtally/cmd/internal/completion"
	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// completionCmd prints the script for a shell to source. The script calls "flowtally __complete -- WORDS…" with the words
// up to the cursor.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: ${enum}."`
}

// Help is shown by completion --help.
func (*completionCmd) Help() string {
	return `Commands, flags, their values, interfaces and the names of counters are completed.

  source <(flowtally completion bash)

  source <(flowtally completion zsh)

  flowtally completion fish | source`
}

func (c *completionCmd) Run(env *Env) error {
	_, err := fmt.Fprint(env.Stdout, completion.Script(c.Shell))
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

	for _, s := range completion.Complete(env.model.Node, words, valuesOf) {
		if format.Printable(s) != s {
			continue // a hostile name in a mirror: the shell or the terminal would interpret it
		}
		fmt.Fprintln(env.Stdout, s)
	}
	return nil
}

// valuesOf returns the possible values of a flag or an argument: from its enum, or from the source in its tag "complete".
// given has the flags before the cursor.
func valuesOf(v *kong.Value, given map[string]string) []string {
	if v.Enum != "" {
		return slices.DeleteFunc(v.EnumSlice(), func(s string) bool { return s == "" })
	}
	switch v.Tag.Get("complete") {
	case "interfaces":
		return interfaceNames()
	case "counters":
		return fromMirror(given, selection.CounterNames)
	case "labels":
		return fromMirror(given, labelChoices)
	case "label-keys":
		return fromMirror(given, selection.LabelKeys)
	case "queue-pairs":
		return queuePairNames(given)
	}
	return nil
}

// fromMirror calls choices with the catalogue of the mirror chosen by the given flags or the environment. It returns
// nothing if the mirror is unreadable: a completion must not print errors.
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

// labelChoices returns the keys of all labels, and the labels as KEY=VALUE.
func labelChoices(entries []shm.Entry) []string {
	return append(selection.LabelKeys(entries), selection.Labels(entries)...)
}

// queuePairNames returns the queue pairs of the running instance chosen by the given flags or the environment. It gives
// up after a second, because somebody has pressed Tab and is waiting.
func queuePairNames(given map[string]string) []string {
	s := socketFlag{Socket: cmp.Or(given["socket"], os.Getenv("FLOWTALLY_SOCKET"))}
	if s.Instance.UnmarshalText([]byte(cmp.Or(given["instance"], os.Getenv("FLOWTALLY_INSTANCE")))) != nil {
		return nil
	}

	var names []string
	_ = s.talk(&Env{Context: context.Background()}, time.Second, func(ctx context.Context, svc dataplane.Service) error {
		pairs, err := svc.QueuePairs().List(ctx)
		for _, q := range pairs {
			names = append(names, q.Name)
		}
		return err
	})
	return names
}
