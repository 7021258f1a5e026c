package hostcheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm/words"
)

func TestReservedWordsAreCountedByState(t *testing.T) {
	mirror := filepath.Join(t.TempDir(), "m.mirror")
	if got := checkWords(mirror); got != nil {
		t.Errorf("without an instance: %+v", got)
	}
	svc, err := engine.New(t.Context(), dataplane.Config{
		Instance: "doctor", Words: []string{"a", "b", "c"}, Mirror: dataplane.MirrorConfig{Path: mirror, Counters: 64, History: -1},
		Poll: dataplane.PollConfig{Period: time.Millisecond, IdlePeriod: time.Millisecond},
	}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	w, err := words.Take(mirror, "a", words.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	want := "3 of 128 reserved, 1 in use, 0 abandoned; socket of mode 0600, group "
	lab.Eventually(t, "the taken words are in the mirror: "+want, func() bool {
		got := checkWords(mirror)
		return len(got) == 1 && got[0].Object == words.Path(mirror) && got[0].Answer == probe.Yes && strings.HasPrefix(got[0].Reason, want)
	})
	if os.Geteuid() == 0 {
		return // root may connect to every socket
	}
	if err := os.Chmod(words.Path(mirror), 0); err != nil {
		t.Fatal(err)
	}
	if got := checkWords(mirror); len(got) != 1 || got[0].Answer != probe.No || got[0].Fix == "" {
		t.Errorf("without the right to connect: %+v", got)
	}
}
