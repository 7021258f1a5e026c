package cli

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestNotifySystemd(t *testing.T) {
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
