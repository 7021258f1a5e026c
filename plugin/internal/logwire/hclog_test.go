package logwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	hclog "github.com/hashicorp/go-hclog"
)

// through logs with f in a plugin, and returns the lines and the host's log.
func through(f func(*slog.Logger)) (lines, host string) {
	var raw, out bytes.Buffer
	f(slog.New(newHandler(&raw, slog.LevelDebug-4)))
	w := &Lines{log: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{
		Level: slog.LevelDebug - 4,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))}
	_, _ = w.Write(raw.Bytes())
	return raw.String(), strings.TrimSpace(out.String())
}

func TestRecordsCrossWithTheirAttributesInOrder(t *testing.T) {
	for name, test := range map[string]struct {
		log  func(*slog.Logger)
		want string
	}{
		"plain": {func(l *slog.Logger) { l.Info("hello") }, `{"level":"INFO","msg":"hello"}`},
		"attributes in order": {
			func(l *slog.Logger) { l.Warn("m", "z", 1, "a", "two", "b", true, "f", 1.5, "n", nil) },
			`{"level":"WARN","msg":"m","z":1,"a":"two","b":true,"f":1.5,"n":null}`,
		},
		"error":    {func(l *slog.Logger) { l.Error("m", "error", errors.New("no luck")) }, `{"level":"ERROR","msg":"m","error":"no luck"}`},
		"debug":    {func(l *slog.Logger) { l.Debug("m") }, `{"level":"DEBUG","msg":"m"}`},
		"trace":    {func(l *slog.Logger) { l.Log(t.Context(), slog.LevelDebug-4, "m") }, `{"level":"DEBUG-4","msg":"m"}`},
		"between":  {func(l *slog.Logger) { l.Log(t.Context(), slog.LevelInfo+2, "m") }, `{"level":"INFO","msg":"m"}`},
		"group":    {func(l *slog.Logger) { l.WithGroup("g").With("a", 1).Info("m", "b", 2) }, `{"level":"INFO","msg":"m","g":{"a":1,"b":2}}`},
		"multi":    {func(l *slog.Logger) { l.Info("two\nlines\x00") }, `{"level":"INFO","msg":"two\nlines\u0000"}`},
		"big":      {func(l *slog.Logger) { l.Info("m", "n", uint64(1<<63)) }, `{"level":"INFO","msg":"m","n":9223372036854775808}`},
		"same key": {func(l *slog.Logger) { l.Info("m", "msg", "mine", "level", "mine") }, `{"level":"INFO","msg":"m","@message":"mine","level":"mine"}`},
	} {
		t.Run(name, func(t *testing.T) {
			lines, got := through(test.log)
			if strings.Count(lines, "\n") != 1 {
				t.Errorf("one record is %q", lines)
			}
			// Numbers above int64 travel as floating point: compare by value.
			var g, w any
			if err := json.Unmarshal([]byte(got), &g); err != nil {
				t.Fatalf("%v: %q", err, got)
			}
			_ = json.Unmarshal([]byte(test.want), &w)
			gj, _ := json.Marshal(g)
			wj, _ := json.Marshal(w)
			if !bytes.Equal(gj, wj) {
				t.Errorf("arrived as %s, want %s", got, test.want)
			}
		})
	}
	if _, got := through(func(l *slog.Logger) { l.Warn("m", "z", 1, "a", 2) }); strings.Index(got, `"z"`) > strings.Index(got, `"a"`) {
		t.Errorf("the order changed: %s", got)
	}
}

// The time of the record is the plugin's, to the microsecond, and of the form
// that go-plugin's own hosts read.
func TestRecordKeepsTheTimeOfThePlugin(t *testing.T) {
	at := time.Date(2026, 11, 20, 23, 59, 59, 123456000, time.FixedZone("", 3600))
	var raw bytes.Buffer
	_ = newHandler(&raw, nil).Handle(t.Context(), slog.NewRecord(at, slog.LevelInfo, "m", 0))
	r, ok := parseRecord(bytes.TrimSpace(raw.Bytes()))
	if !ok || !r.Time.Equal(at) {
		t.Errorf("%s was read as %v", raw.String(), r.Time)
	}
	var entry struct {
		Time string `json:"@timestamp"`
	}
	if err := json.Unmarshal(raw.Bytes(), &entry); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000000Z07:00", entry.Time); err != nil {
		t.Error(err)
	}
}

// hclog's own lines are read too: a third party's plugin writes them.
func TestLinesOfHclogAreReadToo(t *testing.T) {
	var raw, out bytes.Buffer
	hclog.New(&hclog.LoggerOptions{Name: "theirs", JSONFormat: true, Output: &raw, Level: hclog.Trace}).Error("went wrong", "n", 1, "err", errors.New("e"))
	w := &Lines{log: slog.New(slog.NewTextHandler(&out, nil))}
	_, _ = w.Write(raw.Bytes())
	for _, s := range []string{"level=ERROR", `msg="went wrong"`, "@module=theirs", "n=1", "err=e"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("%q is not in %s", s, out.String())
		}
	}
}

func TestPanicIsAnError(t *testing.T) {
	var out bytes.Buffer
	w := &Lines{log: slog.New(slog.NewTextHandler(&out, nil))}
	_, _ = w.Write([]byte("careful\npanic: no luck\n\ngoroutine 1 [running]:\n"))
	for _, s := range []string{"level=WARN msg=careful", `level=ERROR msg="panic: no luck"`, `level=ERROR msg="goroutine 1 [running]:"`} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("%q is not in %s", s, out.String())
		}
	}
	for range 100 {
		_, _ = w.Write([]byte("main.f()\n"))
	}
	if tail := w.Last(); !strings.HasPrefix(tail, "panic: no luck") || strings.Count(tail, "\n") >= tailLines {
		t.Errorf("kept of a panic: %q", tail)
	}
}

func TestPluginIsAskedForTheLevelOfItsHost(t *testing.T) {
	for level, want := range map[slog.Level]string{
		slog.LevelDebug - 8: "trace", slog.LevelDebug: "debug", slog.LevelInfo: "info", slog.LevelInfo + 1: "warn", slog.LevelError: "error", off - 1: "off",
	} {
		if got := Level(slog.New(slog.NewTextHandler(&bytes.Buffer{}, &slog.HandlerOptions{Level: level}))); got != want {
			t.Errorf("a logger from %v asks for %s, want %s", level, got, want)
		}
	}
	if got := Level(slog.New(slog.DiscardHandler)); got != "off" {
		t.Errorf("a logger that discards asks for %s", got)
	}
	if l := NewLogger(&bytes.Buffer{}, "nonsense"); !l.Enabled(t.Context(), slog.LevelInfo) || l.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("an unknown level is not info")
	}
}

// However the bytes are cut into writes, the same lines come out, none longer
// than the bound, and nothing panics.
func FuzzLogLines(f *testing.F) {
	f.Add([]byte(`{"@message":42,"@level":[],"@timestamp":{}}`+"\n\xff\n{\"@message\":\"x\",\"a\":{\"b\":[1,2]}}\n"), uint8(3))
	f.Add([]byte("panic: x\n"), uint8(1))
	f.Add([]byte(strings.Repeat("y", maxLine+10)+"\n"), uint8(200))
	f.Fuzz(func(t *testing.T, b []byte, chunk uint8) {
		run := func(size int) string {
			var out bytes.Buffer
			w := &Lines{log: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug - 8, ReplaceAttr: func(g []string, a slog.Attr) slog.Attr {
				if len(g) == 0 && a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))}
			for rest := b; len(rest) > 0; {
				n := min(size, len(rest))
				if m, err := w.Write(rest[:n]); m != n || err != nil {
					t.Fatalf("wrote %d of %d: %v", m, n, err)
				}
				if len(w.line) > maxLine {
					t.Fatalf("a line of %d bytes is kept", len(w.line))
				}
				rest = rest[n:]
			}
			tail := w.Last()
			if len(tail) > (tailLines+1)*(maxTailLine+8) {
				t.Fatalf("the tail has %d bytes", len(tail))
			}
			return out.String()
		}
		whole := run(len(b) + 1)
		if parts := run(int(chunk) + 1); parts != whole {
			t.Errorf("cut into %d bytes: %q, whole: %q", chunk+1, parts, whole)
		}
		for line := range strings.Lines(whole) {
			if !json.Valid([]byte(line)) {
				t.Errorf("the log holds %q", line)
			}
		}
	})
}
