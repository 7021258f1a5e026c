package words_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/published"
	"github.com/flowtally/flowtally/shm/shmtest"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// condition returns the text of a condition of an instance; "" if it is not raised.
func condition(t *testing.T, svc dataplane.Service, code dataplane.ConditionCode, object string) string {
	t.Helper()
	return raised(t, svc, code, object).Text
}

// raised returns a condition of an instance; the zero value if it is not raised.
func raised(t *testing.T, svc dataplane.Service, code dataplane.ConditionCode, object string) dataplane.Condition {
	t.Helper()
	list, err := svc.Conditions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.Code == code && c.Object == object {
			return c
		}
	}
	return dataplane.Condition{}
}

// awaitCondition waits until a condition is raised or not.
func awaitCondition(t *testing.T, svc dataplane.Service, code dataplane.ConditionCode, object string, raised bool) {
	t.Helper()
	lab.Eventually(t, fmt.Sprintf("%s of %s: %t", code, object, raised), func() bool { return (condition(t, svc, code, object) != "") == raised })
}

// A program that ends without returning its words raises words-abandoned. Either step of the fix ends it.
func TestAbandonedWordsRaiseACondition(t *testing.T) {
	for name, fix := range map[string]func(t *testing.T, svc dataplane.Service, path string){
		"the program is started again": func(t *testing.T, _ dataplane.Service, path string) {
			lab.Eventually(t, "the words are taken again", func() bool {
				w, err := shmwords.Take(path, "app", shmwords.Options{})
				if err != nil && !errors.Is(err, shmwords.ErrInUse) {
					t.Fatal(err)
				}
				if err == nil {
					t.Cleanup(func() { _ = w.Close() })
				}
				return err == nil
			})
		},
		"the words are released": func(t *testing.T, svc dataplane.Service, _ string) {
			if err := svc.ReleaseWords(t.Context(), "app"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := mirror(t)
			svc := instance(t, path, "app", "other")
			if errno, _, _ := abandon(t, path); errno != 0 {
				t.Fatal(errno)
			}
			awaitCondition(t, svc, dataplane.CodeWordsAbandoned, "app", true)
			if text := condition(t, svc, dataplane.CodeWordsAbandoned, "other"); text != "" {
				t.Errorf("other words: %s", text)
			}
			lab.Step(t, raised(t, svc, dataplane.CodeWordsAbandoned, "app").Fix, "start the program again, or: flowtally queue-pairs release …")
			fix(t, svc, path)
			awaitCondition(t, svc, dataplane.CodeWordsAbandoned, "app", false)
		})
	}
}

// A program that writes a smaller number raises words-backwards, until it returns the words.
func TestWordsThatGoBackwardsRaiseACondition(t *testing.T) {
	path := mirror(t)
	svc := instance(t, path, "app")
	r := shmtest.MustOpen(t, path)
	c := connect(t, path)
	errno, _, fd := c.send(shmwords.Request{Kind: shmwords.TakeWords, Name: "app", Limit: math.MaxUint64}.Message())
	if errno != 0 {
		t.Fatal(errno)
	}
	for _, n := range []uint64{1000, 5} {
		b := word(n)
		if _, err := unix.Pwrite(fd, b[:], 0); err != nil {
			t.Fatal(err)
		}
		lab.Eventually(t, "the poller has read the words", func() bool { return published.Completions(t, r, "app") == 1000 })
	}
	awaitCondition(t, svc, dataplane.CodeWordsBackwards, "app", true)
	lab.Step(t, raised(t, svc, dataplane.CodeWordsBackwards, "app").Fix, "correct the program") // which then ends
	if errno, _, _ := c.send(shmwords.Request{Kind: shmwords.ReturnWords}.Message()); errno != unix.ECONNRESET {
		t.Errorf("giving back: %v", errno)
	}
	awaitCondition(t, svc, dataplane.CodeWordsBackwards, "app", false)
}

// A file with the socket's name raises words-socket, until it is moved away. Programs with words are not disturbed.
func TestSocketWithoutItsNameRaisesACondition(t *testing.T) {
	path := mirror(t)
	svc := instance(t, path, "app", "next")
	w := take(t, path, "app")
	socket := shmwords.Path(path)
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	// Under another name first: the instance makes the socket again where there is no file.
	if err := os.WriteFile(socket+".foreign", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(socket+".foreign", socket); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, svc, dataplane.CodeWordsSocket, socket, true)
	lab.Step(t, raised(t, svc, dataplane.CodeWordsSocket, socket).Fix, "remove the cause that the text names")
	if _, err := shmwords.Take(path, "next", shmwords.Options{}); err == nil {
		t.Error("words were taken without a socket")
	}
	w.Add(3, 0)
	r := shmtest.MustOpen(t, path)
	lab.Eventually(t, "the mirror has the words", func() bool { return published.Completions(t, r, "app") == 3 })
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, svc, dataplane.CodeWordsSocket, socket, false)
	take(t, path, "next")
}
