package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/shm"
)

// signalOnPrompt is the standard error of a command. When the command asks its question, it ends the command's
// context, as Ctrl-C does.
type signalOnPrompt struct {
	bytes.Buffer
	interrupt context.CancelFunc
}

func (s *signalOnPrompt) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("[y/N]")) {
		s.interrupt()
	}
	return s.Buffer.Write(p)
}

func TestCleanRemovesNothingIfASignalComesBeforeTheAnswer(t *testing.T) {
	name := lab.Unique("cli-")
	path := filepath.Join(t.TempDir(), name+".mirror")
	w, err := shm.Create(shm.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	ctx, interrupt := context.WithCancel(t.Context())
	terminal, keys := io.Pipe() // nobody types
	defer keys.Close()
	talk := &signalOnPrompt{interrupt: interrupt}
	ended := make(chan int, 1)
	go func() {
		ended <- Main(ctx, terminal, io.Discard, talk, []string{"clean", "--instance", name, "--mirror", path})
	}()

	select {
	case code := <-ended:
		if said := talk.String(); code != exitFailed || !strings.Contains(said, "nothing was changed: a signal came before the answer") {
			t.Errorf("clean ended with code %d and\n%s", code, said)
		}
	case <-time.After(time.Minute):
		t.Fatal("clean waits for the answer after the signal")
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the mirror after the signal: %v", err)
	}
}

// --pin-dir may name the pins of another instance than --instance.
func TestDetachNamesTheInstanceWhosePinsItTakes(t *testing.T) {
	pins := filepath.Join(t.TempDir(), lab.Unique("edge-"))
	if err := os.Mkdir(pins, 0o700); err != nil {
		t.Fatal(err)
	}

	var talk bytes.Buffer
	code := Main(t.Context(), nil, io.Discard, &talk, []string{"detach", "--instance", lab.Unique("lb-"), "--pin-dir", pins})
	want := "instance " + filepath.Base(pins) + ", pinned in " + pins
	if said := talk.String(); !strings.Contains(said, want) {
		t.Errorf("detach ended with code %d and said nothing of %q:\n%s", code, want, said)
	}
}
