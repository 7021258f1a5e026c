package include

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/shm/words"
)

// Signals that interrupt a program each few milliseconds (a profiler sends such) do not make its wait for a reply longer
// than its bound.
func TestSignalsDoNotProlongTheWaitForWords(t *testing.T) {
	take := build(t, "take")
	path := filepath.Join(t.TempDir(), "m.mirror")
	s := lying(t, words.Path(path))
	silent := func() {
		t.Helper()
		conn, _, err := unix.Accept4(s.fd, unix.SOCK_CLOEXEC)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = unix.Close(conn) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go silent()
	out, err := exec.CommandContext(ctx, take, path, "app", "signals").Output()
	if err != nil || !strings.HasPrefix(string(out), "-32 ") {
		t.Errorf("C: %v, %q, want FT_ERR_REPLY", err, out)
	}
	go silent()
	interrupted(t, func() error {
		_, err := words.Take(path, "app", words.Options{})
		return err
	}, func(err error) {
		if err == nil || !strings.Contains(err.Error(), "within 1s") {
			t.Errorf("Go: %v, want an error that names the bound", err)
		}
	})
}

// Signals do not end the wait for the instance that reads words which are given back: another program can take them then.
func TestSignalsDoNotShortenTheReturnOfWords(t *testing.T) {
	take := build(t, "take")
	path := filepath.Join(t.TempDir(), "m.mirror")
	s := lying(t, words.Path(path))
	const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	file := memfd(t, 4096, sealed)
	// serve gives words to a client, and takes them back slowly: within 200 ms the client must not end the connection.
	serve := func() <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, _, err := unix.Accept4(s.fd, unix.SOCK_CLOEXEC)
			if err != nil {
				t.Error(err)
				return
			}
			defer unix.Close(conn)
			b := make([]byte, 256)
			_, _ = unix.Read(conn, b)
			if err := unix.Sendmsg(conn, words.Reply{Number: 1}.Message(), unix.UnixRights(file), nil, unix.MSG_NOSIGNAL); err != nil {
				t.Error(err)
				return
			}
			n, _ := unix.Read(conn, b)
			if !bytes.Equal(b[:max(n, 0)], words.Request{Kind: words.ReturnWords}.Message()) {
				t.Errorf("%d bytes, want a message that gives the words back", n)
			}
			poll := []unix.PollFd{{Fd: int32(conn), Events: unix.POLLIN}}
			for until := time.Now().Add(200 * time.Millisecond); time.Now().Before(until); {
				if n, err := unix.Poll(poll, 10); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
					t.Error("the client ended the connection before the words were taken back")
					return
				}
			}
		}()
		return done
	}
	done := serve()
	if out, err := exec.CommandContext(t.Context(), take, path, "app", "signals").Output(); err != nil || !strings.HasPrefix(string(out), "0 ") {
		t.Errorf("C: %v, %q", err, out)
	}
	<-done
	done = serve()
	w, err := words.Take(path, "app", words.Options{})
	if err != nil {
		t.Fatal(err)
	}
	interrupted(t, w.Close, func(err error) {
		if err != nil {
			t.Errorf("Go: giving back: %v", err)
		}
	})
	<-done
}

// interrupted calls do, and interrupts its thread until it has returned, for 30 s at most.
func interrupted(t *testing.T, do func() error, check func(error)) {
	t.Helper()
	result, thread := make(chan error, 1), make(chan int, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		thread <- unix.Gettid()
		result <- do()
	}()
	id := <-thread
	for until := time.Now().Add(30 * time.Second); ; {
		select {
		case err := <-result:
			check(err)
			return
		case <-time.After(5 * time.Millisecond):
			_ = unix.Tgkill(unix.Getpid(), id, unix.SIGURG) // the runtime's own signal: no handler of a program
		}
		if time.Now().After(until) {
			t.Fatal("the call has not returned after 30 s")
		}
	}
}
