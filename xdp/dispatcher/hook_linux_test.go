package dispatcher

import (
	"errors"
	"testing"
)

func TestRequestWithoutAnAnswerIsAnError(t *testing.T) {
	if a, err := attachmentOf(nil); !errors.Is(err, errNoReply) {
		t.Errorf("got %+v, %v, want errNoReply", a, err)
	}
}
