package plugintest_test

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/plugintest"
)

func fake(t *testing.T) *plugintest.Fake {
	t.Helper()
	svc, err := plugintest.NewFake(t.Context(), dataplane.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return svc.(*plugintest.Fake)
}

func TestFakeConforms(t *testing.T) {
	plugintest.Conformance(t, func() dataplane.Service { return fake(t) })
}

func fakeWith(t *testing.T, pairs []dataplane.QueuePair) dataplane.Service {
	t.Helper()
	svc, err := plugintest.NewFake(t.Context(), dataplane.Config{QueuePairs: pairs}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return svc
}

func TestFakeQueuePairsConform(t *testing.T) {
	plugintest.QueuePairConformance(t, "rxe0", 0, func(pairs []dataplane.QueuePair) dataplane.Service { return fakeWith(t, pairs) })
}
