package cli

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Each command waits for an answer on the terminal, or for the writer of a FIFO.
func TestASignalEndsReading(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"run --socket - --config " + fifo, "check --config " + fifo, "doctor --config " + fifo, "explain --config " + fifo + " tcp",
		"selftest --interface lo --config " + fifo, "selftest --interface lo", "flows add --file -", "flows add --file " + fifo,
	} {
		t.Run(strings.Split(args, " --")[0], func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			terminal, keys := io.Pipe()
			defer keys.Close()
			done := make(chan int, 1)
			var out, talk bytes.Buffer
			go func() {
				done <- Main(ctx, terminal, &out, &talk, strings.Fields(args))
			}()
			cancel()
			select {
			case code := <-done:
				if code == exitOK {
					t.Errorf("%s: code 0", args)
				}
				if said := talk.String(); strings.Contains(said, "flowtally: context canceled") {
					t.Errorf("%s does not say what it waited for: %s", args, said)
				}
			case <-time.After(time.Minute):
				t.Errorf("%s does not end", args)
			}
		})
	}
}
