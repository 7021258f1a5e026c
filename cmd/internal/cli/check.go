package cli

import (
	"fmt"
	"io"

	"github.com/flowtally/flowtally/shm"
)

// checkCmd verifies a mirror.
type checkCmd struct {
	outputFlag
	instanceFlag
}

func (c *checkCmd) Run(env *Env) error {
	path := c.mirrorPath()
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

// printProblems prints every broken invariant, or that there is none.
func printProblems(w io.Writer, asJSON bool, path string, problems []shm.Problem) error {
	if asJSON {
		list := make([]problemJSON, len(problems))
		for i, p := range problems {
			list[i] = problemJSON(p)
		}
		return printJSON(w, struct {
			Schema   int           `json:"schema"`
			Path     string        `json:"path"`
			OK       bool          `json:"ok"`
			Problems []problemJSON `json:"problems"`
		}{1, path, len(problems) == 0, list})
	}
	if len(problems) == 0 {
		_, err := fmt.Fprintf(w, "%s: ok\n", path)
		return err
	}
	for _, p := range problems {
		if _, err := fmt.Fprintf(w, "%s: %s\n", path, p); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s: %s\n", path, plural(uint64(len(problems)), "problem", "problems"))
	return err
}
