package catalogue

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// Create creates the mirror, or takes over the mirror of an earlier process.
func Create(cfg dataplane.MirrorConfig, log *slog.Logger) (*shm.Writer, error) {
	group, err := waitGroup(cfg.WaitGroup)
	if err != nil {
		return nil, err
	}
	w, err := shm.Create(shm.Options{
		Path: cfg.Path, Counters: cfg.Counters, LatencyCounters: cfg.LatencyCounters,
		History: cfg.History, Mode: cfg.Mode, WaitGroup: group, Logger: log,
	})
	switch {
	case errors.Is(err, shm.ErrInUse):
		return nil, fmt.Errorf("%w: %w", dataplane.ErrInUse, err)
	case errors.Is(err, shm.ErrFull):
		return nil, fmt.Errorf("%w: %w", dataplane.ErrFull, err)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%w: %w", dataplane.ErrPermission, err)
	case err != nil:
		return nil, err
	}
	return w, nil
}

// waitGroup returns the number of a group that the configuration names by name or number; 0 means none.
func waitGroup(name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	text := name
	if _, err := strconv.ParseUint(name, 10, 31); err != nil {
		g, err := user.LookupGroup(name)
		if err != nil {
			return 0, fmt.Errorf("mirror.wait_group %q: looking it up: %w: %w; name a group of /etc/group, or its number", name, err, dataplane.ErrInvalid)
		}
		text = g.Gid
	}
	gid, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("mirror.wait_group %q: its number: %w: %w", name, err, dataplane.ErrInvalid)
	}
	if gid == 0 {
		return 0, fmt.Errorf("mirror.wait_group %q: root's group is no group of waiters: root is woken anyway: %w; name another group", name, dataplane.ErrInvalid)
	}
	return int(gid), nil
}
