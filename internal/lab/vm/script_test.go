package vm

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// events encodes events as the first process does.
func events(t testing.TB, es ...Event) string {
	t.Helper()
	var b strings.Builder
	for _, e := range es {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}

func TestCollectKeepsWhatAnIncompleteRunHasSaid(t *testing.T) {
	whole := events(t,
		Event{Ready: "6.1.0"},
		Event{Output: &Output{Step: "a", Data: []byte("one\n")}},
		Event{Output: &Output{Step: "a", Data: []byte("err\xff\n"), Stderr: true}},
		Event{Output: &Output{Step: "b", Data: []byte("of b\n")}}, // a process that outlives its step goes on writing
		Event{Output: &Output{Step: "a", Data: []byte("two\n")}},
		Event{Exit: &Exit{Step: "a", Code: 3, Took: time.Second}},
		Event{Exit: &Exit{Step: "b"}},
		Event{Log: &Log{Step: "b", Level: 4, Text: "a warning"}},
		Event{Done: true},
	)
	a := &StepResult{Exit: Exit{Step: "a", Code: 3, Took: time.Second}, Stdout: []byte("one\ntwo\n"), Stderr: []byte("err\xff\n")}
	b := &StepResult{Exit: Exit{Step: "b"}, Stdout: []byte("of b\n")}
	for _, c := range []struct {
		name, text string
		want       Result
		err        string // "": no error
	}{
		{"whole", whole, Result{"6.1.0", map[string]*StepResult{"a": a, "b": b}, []Log{{"b", 4, "a warning"}}}, ""},
		{"nothing", "", Result{"", map[string]*StepResult{}, nil}, ErrIncomplete.Error()},
		{"cut off in a line", whole[:len(whole)-3], Result{"6.1.0", map[string]*StepResult{"a": a, "b": b}, []Log{{"b", 4, "a warning"}}}, ErrIncomplete.Error()},
		{
			"ended in a step", events(t, Event{Ready: "6.1.0"}, Event{Output: &Output{Step: "a", Data: []byte("x")}}),
			Result{"6.1.0", map[string]*StepResult{"a": {Exit: Exit{Step: "a", Code: -1}, Stdout: []byte("x")}}, nil}, ErrIncomplete.Error(),
		},
		{"fatal", events(t, Event{Fatal: "loading module x: no"}), Result{"", map[string]*StepResult{}, nil}, "inside the machine: loading module x: no"},
		{"no event", "Oops: 0000\n", Result{"", map[string]*StepResult{}, nil}, "reading event 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Collect(strings.NewReader(c.text))
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzCollect: every input is read to its end, and only the final event ends a script.
func FuzzCollect(f *testing.F) {
	f.Add(events(f, Event{Ready: "6.1.0"}, Event{Output: &Output{Step: "a", Data: []byte{0}}}, Event{Exit: &Exit{Step: "a"}}, Event{Done: true}))
	f.Add(events(f, Event{Fatal: "no"}))
	f.Add("{}\n{\"Exit\":{}}\nnull\n")
	f.Fuzz(func(t *testing.T, text string) {
		res, err := Collect(strings.NewReader(text))
		if res == nil || res.Steps == nil {
			t.Fatal("no result")
		}
		if err == nil && !strings.Contains(strings.ToLower(text), `"done"`) {
			t.Errorf("%q is the end of a script", text)
		}
		if errors.Is(err, ErrIncomplete) && strings.HasSuffix(text, events(t, Event{Done: true})) {
			t.Errorf("%q is not the end of a script", text)
		}
	})
}
