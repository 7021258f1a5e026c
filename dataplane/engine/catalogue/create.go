package catalogue

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/live"
	"github.com/flowtally/flowtally/internal/space"
	"github.com/flowtally/flowtally/shm"
)

// Create creates the mirror, or takes over the mirror of an earlier process. A nil reserve means fallocate.
func Create(cfg dataplane.MirrorConfig, reserve space.Reserve, log *slog.Logger) (*shm.Writer, error) {
	group, err := GroupOf("wait_group", cfg.WaitGroup)
	if err != nil {
		return nil, err
	}
	w, err := shm.Create(shm.Options{
		Path:            cfg.Path,
		Counters:        cfg.Counters,
		LatencyCounters: cfg.LatencyCounters,
		History:         cfg.History,
		Mode:            cfg.Mode,
		WaitGroup:       group,
		Logger:          log,
		Reserve:         reserve,
	})
	switch {
	case errors.Is(err, shm.ErrFormat):
		return nil, fmt.Errorf("mirror.path: %w: %w", dataplane.ErrInvalid, err)
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

// GroupOf returns the number of a group, which a setting gives by name or by number. An empty name returns 0, for no group.
func GroupOf(setting, name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	text := name
	if _, err := strconv.ParseUint(name, 10, 31); err != nil {
		g, err := user.LookupGroup(name)
		if err != nil {
			return 0, fmt.Errorf("mirror.%s %q: looking it up: %w: %w; name a group of /etc/group, or its number", setting, name, err, dataplane.ErrInvalid)
		}
		text = g.Gid
	}
	gid, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("mirror.%s %q: its number: %w: %w", setting, name, err, dataplane.ErrInvalid)
	}
	if gid == 0 {
		return 0, fmt.Errorf("mirror.%s %q: root's group is no group of readers: root may read anyway: %w; name another group", setting, name, dataplane.ErrInvalid)
	}
	return int(gid), nil
}

// ServeLive lets readers map the memory in which one of the sources counts in the kernel, and tells them through the mirror which
// counters are there. It does nothing unless the configuration asks for it. Close ends it.
func (m *Catalogue) ServeLive(cfg dataplane.MirrorConfig, sources []backend.Backend) error {
	if cfg.LiveMode == 0 && cfg.LiveGroup == "" {
		return nil
	}
	group, err := GroupOf("live_group", cfg.LiveGroup)
	if err != nil {
		return err
	}
	for _, s := range sources {
		source, ok := s.(backend.LiveCounters)
		if !ok {
			continue
		}
		of, epoch, err := source.LiveMap()
		if err != nil {
			return fmt.Errorf("mirror.live_mode: handing out the counters of backend %s: %w", s.Name(), err)
		}
		m.socket, err = live.Listen(live.Options{
			Path:   shm.LivePath(m.path),
			Map:    of,
			Mode:   cmp.Or(cfg.LiveMode, 0o660),
			Group:  group,
			Logger: m.log,
		})
		if err != nil {
			return err
		}
		m.plan.ShowLive(m.writer, source, of.ID, epoch)
		return nil
	}
	m.log.Warn("no counter can be read live: no backend counts in memory that can be handed out", "setting", "mirror.live_mode")
	return nil
}

// Close ends the socket of ServeLive.
func (m *Catalogue) Close() error { return m.socket.Close() }
