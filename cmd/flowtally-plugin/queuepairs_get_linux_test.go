package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/cli"
	"github.com/flowtally/flowtally/dataplane"
)

// The poller has never published the device's count, and the plugin is stopped by a signal.
func TestGetAndWaitReadTheDeviceWhileThePluginIsStopped(t *testing.T) {
	const posted = 1000
	path := filepath.Join(t.TempDir(), "stopped.mirror")
	c := launchPair(t, dataplane.Config{
		Instance: "stopped", Backend: "sim", RDMA: withCompletionCounters(t), Mirror: dataplane.MirrorConfig{Path: path},
		Poll: dataplane.PollConfig{Period: time.Hour},
	})
	if p, err := c.QueuePairs().Post(t.Context(), "near", dataplane.Send, posted); err != nil || p.Completed != posted {
		t.Fatalf("sent as %+v, %v", p, err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(info.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Kill(info.PID, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "sent"}, `(?m)^sent +completion +1,000 +0 +[^ ]+ +rdma:mlx5_0/comp_cntr\+external, its words`},
		{[]string{"get", "-o", "json", "sent"}, `"age_ns":[0-9]+,.*"completions":1000,"errors":0,.*"device":true\}`},
		{[]string{"top", "--count", "1", "sent"}, `(?m)^sent +1,000 +0 .* its words`},
		{[]string{"wait", "sent", "--at-least", "1000"}, `(?m)^sent +completion +1,000 +0 `},
	} {
		var out, talk bytes.Buffer
		code := cli.Main(t.Context(), strings.NewReader(""), &out, &talk, append(tt.args, "--mirror", path))
		if code != 0 || !regexp.MustCompile(tt.want).MatchString(out.String()) {
			t.Errorf("%v ended with %d:\n%s%s", tt.args, code, &out, &talk)
		}
	}
}
