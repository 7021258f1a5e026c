package cli

import (
	"fmt"
	"io"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/shm"
)

// checkCmd verifies a mirror or a configuration.
type checkCmd struct {
	outputFlag
	instanceFlag
	Config string `short:"c" help:"Verify this configuration file, in place of a mirror." placeholder:"FILE"`
}

// Help is shown by check --help.
func (*checkCmd) Help() string {
	return `Exits with 1 when an invariant of a mirror is broken, with 2 when a configuration has a mistake. A mirror of any owner is checked, and only read. Of a configuration it prints the expected cost of a packet, which it computes without BPF; "flowtally explain --classifier" prints more.

Examples:

  flowtally check

  flowtally check --mirror /run/flowtally/edge.mirror -o json

  flowtally check --config /etc/flowtally.yaml`
}

func (c *checkCmd) Run(env *Env) error {
	if c.Config != "" {
		return c.checkConfig(env)
	}
	return c.checkMirror(env)
}

// checkMirror verifies a mirror. It trusts any owner, because it only reads the file and finds out what is wrong with it.
func (c *checkCmd) checkMirror(env *Env) error {
	path, err := c.readPath(shm.ReaderOptions{})
	if err != nil {
		return err
	}
	problems, err := shm.Check(path)
	if err != nil {
		return mirrorError(path, err)
	}
	if err := printProblems(env.Stdout, c.json(), path, problems); err != nil {
		return err
	}

	if len(problems) > 0 {
		return exitError(exitFailed)
	}
	return nil
}

// problemJSON is one broken invariant in the JSON of check.
type problemJSON struct {
	Object string `json:"object"`
	Offset int64  `json:"offset"`
	Text   string `json:"text"`
}

// printProblems prints every broken invariant, or "ok" if there is none.
func printProblems(w io.Writer, asJSON bool, path string, problems []shm.Problem) error {
	if asJSON {
		list := make([]problemJSON, len(problems))
		for i, p := range problems {
			list[i] = problemJSON(p)
		}
		return format.JSON(w, checkedMirrorJSON{1, path, len(problems) == 0, list})
	}

	if len(problems) == 0 {
		_, err := fmt.Fprintf(w, "%s: ok\n", path)
		return err
	}
	for _, p := range problems {
		if _, err := fmt.Fprintf(w, "%s: %s\n", path, format.PrintableLines(p.String())); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s: %s\n", path, format.Plural(uint64(len(problems)), "problem", "problems"))
	return err
}
