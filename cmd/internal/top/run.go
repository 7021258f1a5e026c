package top

import (
	"context"
	"fmt"
	"io"

	tea "charm.land/bubbletea/v2"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// framesPerSecond is how often bubbletea compares the screen with the model.
const framesPerSecond = 20

// Run shows the table on a terminal until the user quits, the context ends, or after Options.Count looks. It leaves the
// last screen on the terminal.
func Run(ctx context.Context, o Options) error {
	m := newModel(o)
	defer m.close()
	options := []tea.ProgramOption{
		tea.WithContext(ctx),
		tea.WithoutSignalHandler(),
		tea.WithFPS(framesPerSecond),
	}
	if o.Input != nil && format.IsTerminal(o.Input) {
		options = append(options, tea.WithInput(o.Input)) // else bubbletea opens /dev/tty
	}
	if o.Output != nil {
		options = append(options, tea.WithOutput(o.Output))
	}
	if o.Environ != nil {
		options = append(options, tea.WithEnvironment(o.Environ))
	}

	_, err := tea.NewProgram(m, options...).Run()
	switch {
	case m.failed != nil:
		return m.failed
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("top: drawing on the terminal: %w", err)
	}

	if o.Output != nil {
		m.page = onTable
		m.editing = false
		if _, err := io.WriteString(o.Output, m.plain()); err != nil {
			return fmt.Errorf("top: leaving the last screen: %w", err)
		}
	}
	return nil
}
