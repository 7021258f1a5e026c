package cli

import "github.com/flowtally/flowtally/cmd/internal/selection"

// newSelection is selection.New for flags: its error is a usage error.
func newSelection(names []string, o selection.Options) (*selection.Selection, error) {
	s, err := selection.New(names, o)
	if err != nil {
		return nil, &usageError{err}
	}
	return s, nil
}
