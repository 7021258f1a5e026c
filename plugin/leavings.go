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

// releaseBound limits the process that cleans up after a dead plugin. It usually takes 0.1 s. It takes longer only while
// something still locks the pins.
const releaseBound = 10 * time.Second

// site records the pins and the mirror that existed before a start, to tell afterwards what the start has left behind.
type site struct {
	instance string
	pins     string
	before   []string // names in pins
	known    bool     // this process was able to list pins
	mirror   string
	mirrored bool // the mirror existed
	keeps    bool // KeepPins
}

// look records the site of a configuration before a start.
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

// there reports whether a path exists. In doubt it returns true.
func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// leavings returns what a process killed during its start may have left behind. any is false if nothing is there.
func (s site) leavings() (l hosted.Leavings, any bool) {
	if there(s.pins) && (s.known || !s.keeps) {
		l.Pins = s.pins
		if s.keeps && slices.Contains(s.before, "meta") { // without the map "meta" no start can adopt the pins
			l.Keep = s.before
		}
	}
	if !s.mirrored && there(s.mirror) {
		l.Mirror = s.mirror
	}
	return l, l.Pins != "" || l.Mirror != ""
}

// release removes leavings in another process of the plugin's binary, which has privileges that the host may lack. It works
// even if the plugin cannot start, because it loads no BPF program. The plugin must have ended.
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
