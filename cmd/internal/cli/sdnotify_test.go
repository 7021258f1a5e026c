package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/selection"
)

func TestNotifySystemdReachesTheSocketOfTheServiceManager(t *testing.T) {
	dir, err := os.MkdirTemp("", "ft") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	t.Setenv("NOTIFY_SOCKET", "")
	if err := notifySystemd("READY=1"); err != nil {
		t.Errorf("without a service manager: %v", err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	if err := notifySystemd("READY=1"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := conn.Read(buf)
	if err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("got %q, %v", buf[:n], err)
	}
	t.Setenv("NOTIFY_SOCKET", path+"x")
	if err := notifySystemd("READY=1"); err == nil {
		t.Error("no error where nobody listens")
	}
}

// READY comes once there are values to read, and STOPPING before the end.
func TestRunTellsTheServiceManagerReadyAndStopping(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("instances run on Linux")
	}
	dir, err := os.MkdirTemp("", "ft")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	notify, mirror := filepath.Join(dir, "notify"), filepath.Join(dir, "m", "x.mirror")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", notify)
	receive := func(want string) {
		t.Helper()
		buf := make([]byte, 256)
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil || !strings.HasPrefix(string(buf[:n]), want) {
			t.Fatalf("got %q, %v; want %s", buf[:n], err, want)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan string, 1)
	go func() {
		var talk bytes.Buffer
		code := Main(ctx, nil, io.Discard, &talk, []string{"run", "--embedded", "--backend", "sim", "--flow", "a=any", "--socket", "-", "--mirror", mirror})
		ended <- fmt.Sprintf("%d %s", code, talk.String())
	}()
	receive("READY=1\nSTATUS=counting 1 flow in " + mirror)
	m, err := openMirror(readerFlag{instanceFlag: instanceFlag{Mirror: mirror}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	wanted, err := newSelection([]string{"a"}, selection.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := m.read(wanted); err != nil || !r.Counters[0].Present() {
		t.Errorf("ready without values: %+v, %v", r, err)
	}
	cancel()
	receive("STOPPING=1")
	if end := <-ended; !strings.HasPrefix(end, "0 ") {
		t.Errorf("ended with %s", end)
	}
}
