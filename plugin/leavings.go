package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/hosted"
	"github.com/flowtally/flowtally/plugin/internal/child"
)

// releaseBound bounds the process that removes what a dead plugin has left. It takes a tenth of a second, and longer
// only while the dead plugin's pins are locked.
const releaseBound = 10 * time.Second

// site is where an instance leaves pins and a mirror, and what was there before it started.
type site struct {
	instance string
	pins     string
	before   []string // names in pins
	known    bool     // before is known: this process may look
	mirror   string
	mirrored bool // the mirror was there
	keeps    bool // the configuration keeps pins
}

// look returns the site of a configuration as it is before a start.
func look(cfg dataplane.Config) site {
	s := site{instance: cfg.Instance, pins: cfg.PinDir(), mirror: cfg.MirrorPath(), keeps: cfg.XDP.KeepPins}
	entries, err := os.ReadDir(s.pins)
	s.known = err == nil || errors.Is(err, fs.ErrNotExist)
	for _, e := range entries {
		s.before = append(s.before, e.Name())
	}
	s.mirrored = there(s.mirror)
	return s
}

// there reports whether a path exists, or may exist.
func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// leavings returns what a process that was killed in a start may have left. any is false if there is nothing.
func (s site) leavings() (l hosted.Leavings, any bool) {
	if there(s.pins) && (s.known || !s.keeps) {
		l.Pins = s.pins
		if s.keeps && slices.Contains(s.before, "meta") { // without a meta map the pins are of no use
			l.Keep = s.before
		}
	}
	if !s.mirrored && there(s.mirror) {
		l.Mirror = s.mirror
	}
	return l, l.Pins != "" || l.Mirror != ""
}

// release removes leavings by their paths, in a process of the plugin's binary: it has the privileges that the plugin
// had, which its host may lack. It loads no program, so it works where the plugin did not. The plugin has ended.
func release(o *Options, l hosted.Leavings, instance string) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseBound)
	defer cancel()
	if err := runRelease(ctx, o, l); err != nil {
		return fmt.Errorf("%w: %w; flowtally clean --instance %s removes it", ErrLeft, err, cmp.Or(instance, "default"))
	}
	return nil
}

func runRelease(ctx context.Context, o *Options, l hosted.Leavings) error {
	path, file, err := find(o.Path)
	if err != nil {
		return err
	}
	defer file.Close() // a nil file's Close does nothing
	text, err := l.Text()
	if err != nil {
		return err
	}
	return child.New(path, file, []string{hosted.ReleaseWord, text}, environment(o)).Run(ctx)
}
