package plugin

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// patient replies to a health check after a while; negative: never.
type patient struct {
	grpc_health_v1.HealthClient
	takes func() time.Duration
	err   error
}

func (p *patient) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest, _ ...grpc.CallOption) (*grpc_health_v1.HealthCheckResponse, error) {
	d := p.takes()
	if d < 0 {
		d = 1000 * time.Hour
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(d):
		return &grpc_health_v1.HealthCheckResponse{}, p.err
	}
}

// A plugin that replies in time is not ended however long it runs. One that does not is given up after the limit, and
// at most a sixth of it more, and its silence is said once. The clock is the test's own.
func TestPulseGivesUpOnSilenceAndNeverOnSlowReplies(t *testing.T) {
	const limit = 30 * time.Second
	for name, c := range map[string]struct {
		takes func(since time.Duration) time.Duration
		err   error
		ends  time.Duration // from here on its checks fail; negative: they always succeed
	}{
		"answers":         {func(time.Duration) time.Duration { return time.Millisecond }, nil, -1},
		"answers late":    {func(time.Duration) time.Duration { return limit - time.Second }, nil, -1},
		"never answers":   {func(time.Duration) time.Duration { return -1 }, nil, 0},
		"answers errors":  {func(time.Duration) time.Duration { return 0 }, errors.New("not serving"), 0},
		"stops answering": {func(since time.Duration) time.Duration { return map[bool]time.Duration{true: -1}[since > time.Hour] }, nil, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Hour)
				defer cancel()
				h := &patient{takes: func() time.Duration { return c.takes(time.Since(began)) }, err: c.err}
				var said atomic.Int32
				hung := pulse(ctx, h, limit, func() { said.Add(1) })
				took := time.Since(began)
				if hung != (c.ends >= 0) {
					t.Fatalf("given up: %v, after %v", hung, took)
				}
				if hung && (took < c.ends+limit || took > c.ends+limit+limit/6+time.Second) {
					t.Errorf("given up after %v, without a good answer from %v on", took, c.ends)
				}
				if n := said.Load(); hung && n != 1 {
					t.Errorf("the silence was said %d times", n)
				} else if name == "answers" && n != 0 {
					t.Errorf("a silence was said %d times beside good answers", n)
				}
			})
		})
	}
}
