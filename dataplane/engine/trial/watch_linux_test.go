package trial

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowtally/flowtally/internal/verbpage"
)

// A verb that does not return is a fault of its device. Verbs that are late may be those of a busy host.
func TestATrialHangsOnlyWhileItStandsInOneVerb(t *testing.T) {
	type verb struct {
		takes time.Duration
		pause time.Duration // behind it
	}
	late := verb{takes: Bound - time.Second}

	for _, c := range []struct {
		name  string
		verbs []verb
		exit  error
		how   string
		hangs bool
		after time.Duration
	}{
		{name: "verbs in time", verbs: []verb{{takes: time.Second}, {takes: time.Second}}, after: 2 * time.Second},
		{name: "verbs that are late", verbs: []verb{late, late, late}, after: 3 * late.takes},
		{name: "an exit status", exit: errors.New("exit status 2"), how: "ended (exit status 2)"},
		{
			name:  "a verb that does not return",
			verbs: []verb{late, {takes: time.Hour}},
			how:   "had not returned after 5s",
			hangs: true,
			after: late.takes + Bound,
		},
		{
			name:  "no verb at all",
			verbs: []verb{{pause: time.Hour}},
			how:   "had not returned after 5s",
			hangs: true,
			after: Bound,
		},
		{
			name:  "late verbs without end",
			verbs: []verb{late, late, late, late, late, late},
			how:   "was still at work after 20s",
			hangs: true,
			after: Longest,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				page, file, err := verbpage.New()
				if err != nil {
					t.Fatal(err)
				}
				defer page.Close()
				defer file.Close()

				ended := make(chan error, 1)
				go func() {
					for _, v := range c.verbs {
						line := page.Begin("mlx5_0", "ibv_create_flow")
						time.Sleep(v.takes)
						page.End(line)
						time.Sleep(v.pause)
					}
					ended <- c.exit
					close(ended)
				}()

				start := time.Now()
				how, hangs := watch(ended, page)
				if how != c.how || hangs != c.hangs {
					t.Errorf("%q, hangs %t; want %q, hangs %t", how, hangs, c.how, c.hangs)
				}
				// watch looks at the page now and then, and sees a change a look later.
				if took := time.Since(start); took < c.after || took > c.after+Bound/5 {
					t.Errorf("after %v, want %v", took, c.after)
				}
				<-ended // nothing of the bubble may stay
			})
		})
	}
}
