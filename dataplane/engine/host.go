package engine

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/catalogue"
	"github.com/flowtally/flowtally/dataplane/engine/poll"
)

// CheckHost finds what a valid configuration names and this host lacks: groups, and the processor to poll on. New
// refuses it before it makes anything. The error satisfies dataplane.ErrInvalid.
func CheckHost(cfg dataplane.Config) error {
	var errs []error
	for _, g := range []struct{ setting, name string }{
		{"wait_group", cfg.Mirror.WaitGroup}, {"live_group", cfg.Mirror.LiveGroup}, {"words_group", cfg.Mirror.WordsGroup},
	} {
		_, err := catalogue.GroupOf(g.setting, g.name)
		errs = append(errs, err)
	}
	if cfg.Poll.Busy || cfg.Poll.CPU != 0 {
		if err := poll.CheckCPU(cfg.Poll.CPU); err != nil {
			errs = append(errs, fmt.Errorf("poll.cpu %d: %w: %w", cfg.Poll.CPU, dataplane.ErrInvalid, err))
		}
	}
	return errors.Join(errs...)
}
