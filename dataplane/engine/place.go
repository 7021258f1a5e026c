package engine

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/flowtally/flowtally/dataplane"
)

// openBackends opens what the configuration asks for, in the order in which
// flows are offered to them.
func openBackends(ctx context.Context, cfg dataplane.Config, log *slog.Logger) ([]Backend, error) {
	switch cfg.Backend {
	case "sim":
		return []Backend{newSimBackend(nil)}, nil
	case "auto", "xdp":
		b, err := newXDPBackend(ctx, cfg, log)
		if err != nil {
			return nil, err
		}
		return []Backend{b}, nil
	}
	return nil, fmt.Errorf("backend %q: %w: use auto, xdp or sim", cfg.Backend, dataplane.ErrInvalid)
}
