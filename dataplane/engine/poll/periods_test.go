package poll

import (
	"testing"
	"time"
)

func TestPeriodFollowsActivityAndSources(t *testing.T) {
	const now, ms, s = int64(time.Hour), time.Millisecond, time.Second
	for _, tt := range []struct {
		name       string
		fast, idle time.Duration // as configured
		sources    int
		active     time.Duration // before now
		want       time.Duration
	}{
		{"defaults", 0, 0, 1, 0, 10 * ms},
		{"not quiet for long enough", 0, 0, 1, 10*s - 1, 10 * ms},
		{"quiet", 0, 0, 1, 10 * s, 100 * ms},
		{"another idle period", ms, 20 * ms, 1, 10 * s, 20 * ms},
		{"switched off", 10 * ms, 10 * ms, 1, time.Hour, 10 * ms},
		{"a period longer than the default while idle", s, 0, 1, time.Hour, s},
		{"an active counter of a long period", s, 0, 1, 0, s},
		{"no counter", 0, 0, 0, 0, beatPeriod},
		{"no counter, switched off", 10 * ms, 10 * ms, 0, 0, beatPeriod},
		{"no counter, a long period", s, 0, 0, 0, s},
	} {
		if got := newPeriods(tt.fast, tt.idle).at(now, tt.sources, now-int64(tt.active)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
