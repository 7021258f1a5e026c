package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/flowtally/flowtally/cmd/internal/manual"
	"github.com/flowtally/flowtally/configs"
)

// manCmd writes the man pages below a directory. make install runs it.
type manCmd struct {
	Dir string `arg:"" type:"path" help:"The directory, as share/man."`
}

func (c *manCmd) Run(env *Env) error {
	for _, p := range manual.Pages(env.model, string(configs.Sample())) {
		path := filepath.Join(c.Dir, p.File())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("making a directory of man pages: %w", err)
		}
		if err := os.WriteFile(path, []byte(p.Text), 0o644); err != nil {
			return fmt.Errorf("writing a man page: %w", err)
		}
	}
	return nil
}
