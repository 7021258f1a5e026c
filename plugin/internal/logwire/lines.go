package logwire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// maxLine bounds a line of the plugin's stderr; the rest of a longer line is dropped.
	maxLine = 64 << 10
	// maxAttrs bounds the attributes taken from one line.
	maxAttrs = 64
	// tailLines is the number of last lines that Last returns.
	tailLines = 12
	// maxTailLine bounds each of them, in bytes.
	maxTailLine = 512
)

// Lines is the host's end of the plugin's stderr. It cuts the bytes into lines and hands each to the log. The
// plugin may write anything: a line that is not a JSON record of hclog is logged as text.
type Lines struct {
	log *slog.Logger
	raw io.Writer // gets a copy of every byte; may be nil

	mu        sync.Mutex
	line      []byte   // the current one
	dropped   int      // its bytes beyond maxLine
	panicking bool     // the plugin writes the trace of a panic
	tail      []string // for Last
}

// NewLines returns a Lines that writes to log and copies every byte to raw, unless raw is nil.
func NewLines(log *slog.Logger, raw io.Writer) *Lines { return &Lines{log: log, raw: raw} }

// Write implements io.Writer. It never fails.
func (w *Lines) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.raw != nil {
		if _, err := w.raw.Write(p); err != nil {
			w.raw = nil // a broken copy must not stop the plugin's log
		}
	}
	for rest := p; len(rest) > 0; {
		line, after, complete := bytes.Cut(rest, []byte{'\n'})
		take := min(len(line), maxLine-len(w.line))
		w.line = append(w.line, line[:take]...)
		w.dropped += len(line) - take
		if complete {
			w.flush()
		}
		rest = after
	}
	return len(p), nil
}

// Last returns the last lines that the plugin wrote, for a person.
func (w *Lines) Last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.line) > 0 {
		w.flush()
	}
	return strings.Join(w.tail, "\n")
}

// flush logs the current line and begins the next one. The caller holds mu.
func (w *Lines) flush() {
	if line := bytes.TrimRight(w.line, "\r"); len(line) > 0 {
		w.logLine(line)
	}
	w.line = w.line[:0]
	w.dropped = 0
}

// logLine logs a line, and keeps it for Last.
func (w *Lines) logLine(line []byte) {
	r, ok := parseRecord(line)
	if !ok {
		r = w.plainRecord(valid(string(line)))
	}
	if w.dropped > 0 {
		r.AddAttrs(slog.Int("bytes_omitted", w.dropped))
	}
	w.remember(r)

	if h := w.log.Handler(); h.Enabled(context.Background(), r.Level) {
		_ = h.Handle(context.Background(), r)
	}
}

// plainRecord is the record of a line that is none of hclog's: a warning, and an error from the first line of a Go panic
// on.
func (w *Lines) plainRecord(line string) slog.Record {
	panics := strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "SIG")
	if panics && !w.panicking {
		w.tail = nil // the head of a trace explains more than its end
		w.panicking = true
	}

	level := slog.LevelWarn
	if w.panicking {
		level = slog.LevelError
	}
	return record(time.Now(), level, line, []slog.Attr{slog.Bool("raw", true)})
}

// remember keeps a record for Last: the last ones, and of a panic the first ones.
func (w *Lines) remember(r slog.Record) {
	s := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" || a.Key == "err" {
			s += ": " + a.Value.String()
		}
		return true
	})
	if len(s) > maxTailLine {
		s = valid(s[:maxTailLine]) + "…"
	}
	if len(w.tail) == tailLines {
		if w.panicking {
			return
		}
		w.tail = append(w.tail[:0], w.tail[1:]...)
	}
	w.tail = append(w.tail, s)
}

// parseRecord reads one JSON object with a message in hclog's form. Keys keep
// their order; the first of each of hclog's keys is the record's, a later one
// an attribute. Values may be of any type, whatever the key.
func parseRecord(line []byte) (slog.Record, bool) {
	var (
		at                       = time.Now()
		level                    = slog.LevelInfo
		message                  string
		haveM, haveL, haveT, end bool
		attrs                    []slog.Attr
	)
	err := eachMember(line, func(key string, v any) {
		s, isString := v.(string)
		switch {
		case key == keyMessage && !haveM:
			if haveM = true; !isString {
				s = compact(v)
			}
			message = s
		case key == keyLevel && !haveL && isString:
			haveL = true
			level, _ = levelFromName(s)
		case key == keyTime && !haveT && isString:
			if t, err := time.Parse(hclogTime, s); err == nil {
				at, haveT = t, true
			}
		case len(attrs) < maxAttrs:
			attrs = append(attrs, attr(key, v))
		case !end:
			end = true
			attrs = append(attrs, slog.Bool("attributes_omitted", true))
		}
	})
	if err != nil || !haveM {
		return slog.Record{}, false
	}
	if level == off {
		level = slog.LevelError
	}
	return record(at, level, message, attrs), true
}

// eachMember calls f for every member of a JSON object, in the order of the text.
func eachMember(line []byte, f func(key string, v any)) error {
	if len(line) == 0 || line[0] != '{' || !json.Valid(line) {
		return errors.New("no JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name, ok := key.(string)
		if !ok {
			return errors.New("no JSON object")
		}
		var v any
		if err := d.Decode(&v); err != nil {
			return err
		}
		f(name, v)
	}
	return nil
}

// attr keeps the types that slog knows. Other values stay JSON.
func attr(key string, v any) slog.Attr {
	switch v := v.(type) {
	case string:
		return slog.String(key, v)
	case bool:
		return slog.Bool(key, v)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return slog.Int64(key, n)
		}
		if f, err := v.Float64(); err == nil {
			return slog.Float64(key, f)
		}
	}
	return slog.Any(key, json.RawMessage(compact(v)))
}

func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "unreadable"
	}
	return string(b)
}

// valid replaces invalid UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
