package plugin

import (
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// TestRemoteHangsUpOnceAndReturnsItsErrorEachTime: Close of a remote ends the use of its connection once, and
// returns the error of that each time.
func TestRemoteHangsUpOnceAndReturnsItsErrorEachTime(t *testing.T) {
	cc, err := grpc.NewClient("unix:///nowhere", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	broken := errors.New("broken")
	calls := 0
	svc := newRemote(cc, func() error { calls++; return broken })
	for range 2 {
		if err := svc.Close(); !errors.Is(err, broken) {
			t.Errorf("Close: %v, want %v", err, broken)
		}
	}
	if calls != 1 {
		t.Errorf("the connection was given up %d times", calls)
	}
	if err := newRemote(cc, nil).Close(); err != nil {
		t.Errorf("Close of a connection that the caller keeps: %v", err)
	}
}
