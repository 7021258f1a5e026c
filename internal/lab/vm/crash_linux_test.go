//go:build vm

package vm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAPanicEndsTheMachineAndIsShown(t *testing.T) {
	b := newBoot(t, linux61)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	b.image.Bytes("/init", []byte("no program"), 0o755)
	_, err := Machine{Kernel: b.kernel, Image: b.image, Dir: t.TempDir()}.Run(ctx, Script{})
	if !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), "Kernel panic") {
		t.Errorf("got %v; want ErrIncomplete with the panic", err)
	}
}

// A step that hangs is ended by its own limit and the next one runs. A machine that hangs ends with its context, its
// console is in the error, and earlier events are kept.
func TestAStepOrMachineThatHangsIsEnded(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	b := newBoot(t, linux61)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	b.program(t, sleep)
	m := Machine{Kernel: b.kernel, Image: b.image, Dir: t.TempDir()}
	hangs := filepath.Join(binDir, "sleep")
	hung, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // ends the machine when it is known to be in the last step
		for hung.Err() == nil {
			said, _ := os.ReadFile(filepath.Join(m.Dir, "events.jsonl"))
			if bytes.Contains(said, []byte(`"Step":"returns"`)) {
				stop()
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	res, err := m.Run(hung, Script{Steps: []Step{
		{Name: "is ended", Args: []string{hangs, "1000"}, Seconds: 1},
		{Name: "is not there", Args: []string{"/usr/bin/none"}},
		{Name: "returns", Args: []string{hangs, "0"}},
		{Name: "hangs", Args: []string{hangs, "1000"}, Seconds: 1000},
	}})
	if !errors.Is(err, ErrIncomplete) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the end of "+m.Dir) {
		t.Errorf("got %v; want ErrIncomplete for the context's sake, with the console", err)
	}
	if res == nil {
		t.Fatal("no result")
	}
	checkLog(t, res)
	const quit = 128 + 3
	for name, want := range map[string]Exit{
		"is ended":     {Step: "is ended", Code: quit, Error: "still running after 1s"},
		"is not there": {Step: "is not there", Code: 127, Error: "fork/exec /usr/bin/none: no such file or directory"},
		"returns":      {Step: "returns"},
	} {
		s := res.Steps[name]
		if s == nil {
			t.Errorf("%s: it is not in the result", name)
			continue
		}
		if got := s.Exit; got.Code != want.Code || got.Error != want.Error {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	if s := res.Steps["hangs"]; s != nil {
		t.Errorf("the last step ended: %+v", s.Exit)
	}
}
