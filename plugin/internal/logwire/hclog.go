package logwire

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"time"
)

// hclogTime is the layout of time that go-plugin hosts read.
const hclogTime = "2006-01-02T15:04:05.000000Z07:00"

// The keys of hclog's JSON that every record has.
const (
	keyMessage = "@message"
	keyLevel   = "@level"
	keyTime    = "@timestamp"
)

// LevelEnv is the variable that names the lowest level of the host's logger, so that the plugin formats no
// record in vain.
const LevelEnv = "FLOWTALLY_PLUGIN_LOG"

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

// levelName returns the highest of hclog's levels that is not above l.
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

// newHandler writes records as hclog's JSON lines. The three keys of hclog come first in a line, so that a
// reader can tell them from attributes of the same name, which come later.
func newHandler(w io.Writer, level slog.Leveler) slog.Handler {
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

// Level returns the lowest of hclog's levels that l takes.
func Level(l *slog.Logger) string {
	for _, e := range levels {
		if e.level == off || l.Enabled(context.Background(), e.level) {
			return e.name
		}
	}
	return "off"
}

// NewLogger returns the logger of a plugin's process: it writes to w from the named level on.
func NewLogger(w io.Writer, level string) *slog.Logger {
	l, _ := levelFromName(level)
	return slog.New(newHandler(w, l))
}

// record turns a parsed line into a record.
func record(at time.Time, level slog.Level, message string, attrs []slog.Attr) slog.Record {
	r := slog.NewRecord(at, level, message, 0)
	r.AddAttrs(attrs...)
	return r
}
