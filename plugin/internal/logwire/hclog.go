package plugin

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"time"
)

// hclogTime is the one layout of time that go-plugin hosts read.
const hclogTime = "2006-01-02T15:04:05.000000Z07:00"

// The keys that hclog's JSON gives to what every record has.
const (
	keyMessage = "@message"
	keyLevel   = "@level"
	keyTime    = "@timestamp"
)

// levelEnv tells the plugin the lowest level that its host's logger takes, so
// that it formats nothing in vain.
const levelEnv = "FLOWTALLY_PLUGIN_LOG"

// off is above every level.
const off = slog.Level(1 << 20)

var levels = []struct {
	name  string
	level slog.Level
}{
	{"trace", slog.LevelDebug - 4},
	{"debug", slog.LevelDebug},
	{"info", slog.LevelInfo},
	{"warn", slog.LevelWarn},
	{"error", slog.LevelError},
	{"off", off},
}

// levelName is the highest of hclog's levels that is not above l.
func levelName(l slog.Level) string {
	name := levels[0].name
	for _, e := range levels {
		if l >= e.level {
			name = e.name
		}
	}
	return name
}

func levelFromName(name string) (slog.Level, bool) {
	for _, e := range levels {
		if strings.EqualFold(name, e.name) {
			return e.level, true
		}
	}
	return slog.LevelInfo, false
}

// newPluginHandler writes records as hclog's JSON lines: what any go-plugin
// host understands on a plugin's stderr. The three keys of hclog come first in
// a line; an attribute of the same name comes later and is told apart by that.
func newPluginHandler(w io.Writer, level slog.Leveler) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return a
			}
			switch a.Key {
			case slog.MessageKey:
				a.Key = keyMessage
			case slog.LevelKey:
				if l, ok := a.Value.Any().(slog.Level); ok {
					return slog.String(keyLevel, levelName(l))
				}
			case slog.TimeKey:
				if a.Value.Kind() == slog.KindTime {
					return slog.String(keyTime, a.Value.Time().Format(hclogTime))
				}
			}
			return a
		},
	})
}

// hostLevel finds the lowest of hclog's levels that l takes.
func hostLevel(l *slog.Logger) string {
	for _, e := range levels {
		if e.level == off || l.Enabled(context.Background(), e.level) {
			return e.name
		}
	}
	return "off"
}

// pluginLogger is the logger of a plugin's process: to w, from the level that the host named.
func pluginLogger(w io.Writer, level string) *slog.Logger {
	l, _ := levelFromName(level)
	return slog.New(newPluginHandler(w, l))
}

// record turns a parsed line into a record.
func record(at time.Time, level slog.Level, message string, attrs []slog.Attr) slog.Record {
	r := slog.NewRecord(at, level, message, 0)
	r.AddAttrs(attrs...)
	return r
}
