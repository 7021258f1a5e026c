package memorder

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// protocols are correct programs: no execution of them fails.
var protocols = []struct {
	name string
	make func() *program
}{
	{"block-plain", blockPlain},
	{"block-quick", blockQuick},
	{"block-snapshot", blockSnapshot},
	{"block-given-up", blockGivenUp},
	{"record", recordOrdered},
	{"handle-plain", handlePlain},
	{"handle-quick", handleQuickEveryTry},
	{"handle-lookup", handleLookup},
	{"handle-snapshot-before", handleSnapshotBefore},
	{"handle-snapshot-after", handleSnapshotAfter},
	{"entry-slots", entrySlots},
	{"catalogue-changes", catalogueChanges},
	{"exchange-list", exchangeList},
	{"history", historyRing},
	{"growth-list", growthList},
	{"growth-history", growthHistory},
	{"growth-snapshot", growthSnapshotOrdered},
	{"device-words", deviceWords},
	{"device-slot", deviceSlot},
	{"live-words", liveWords},
	{"live-reuse", liveReuse},
	{"live-monotone", liveMonotone},
	{"wait-each", waitEach},
	{"wait-late", waitLate},
	{"wait-pass", waitPass},
	{"marks", marks},
}

// faults are wrong programs. They must fail, or the exploration would overlook faults.
var faults = []struct {
	name string
	make func() *program
	why  string
}{
	{"the quick form compares the epoch once", handleQuickOnce, "a handle of counter 1 returns the value 21"},
	{"the cycle of a record is loaded before it", recordEarly, "the value is of cycle"},
	{"a snapshot loads the number of segments before the cycle", growthSnapshotEarly, "a snapshot of cycle 1 lacks"},
	{"a ring of one record", historyOfOne, "not a mirror"},
}

// idle contains the barriers whose removal changes nothing, each with the reason: another barrier does their work.
var idle = map[string]string{
	"add-fence":        "the removal's publish orders RETIRED before the fields of the next user",
	"begun-release":    "the publishes of the cycle order cycle_begun before what they publish",
	"identity-acquire": "the load fence behind the values orders identity too",
	"seen-release":     "seen is computed from the word, which orders it",
	"turn-acquire":     "the kernel's fence orders turn before the comparison of the word",
}

func TestProtocolsHoldInEveryOrder(t *testing.T) {
	for _, p := range protocols {
		x := explore(p.make())
		if x.failure != "" {
			t.Errorf("%s: %s", p.name, x.failure)
		}
		t.Logf("%-23s %v", p.name, x)
	}
}

func TestWrongProtocolsAreFound(t *testing.T) {
	for _, f := range faults {
		x := explore(f.make())
		if !strings.HasPrefix(x.failure, f.why) {
			t.Errorf("%s: want %q, got %q", f.name, f.why, x.failure)
		}
		t.Logf("%s: after %v: %s", f.name, x, x.failure)
	}
}

// needed returns which programs fail without each barrier.
var needed = sync.OnceValue(func() map[string][]string {
	by := map[string][]string{}
	for _, p := range protocols {
		x := explore(p.make())
		for barrier := range x.barriers {
			if by[barrier] == nil {
				by[barrier] = []string{}
			}
			if explore(p.make(), barrier).failure != "" {
				by[barrier] = append(by[barrier], p.name)
			}
		}
	}
	return by
})

// The idle barriers are the exception: no program fails without them.
func TestProtocolsFailWithoutAnyOneBarrier(t *testing.T) {
	by := needed()
	for _, barrier := range slices.Sorted(maps.Keys(by)) {
		programs := by[barrier]
		switch why, is := idle[barrier]; {
		case len(programs) == 0 && !is:
			t.Errorf("%s: no program fails without it: remove it, or say why it is there", barrier)
		case len(programs) > 0 && is:
			t.Errorf("%s: is said to change nothing (%s), and %v fail without it", barrier, why, programs)
		}
		t.Logf("%-18s %s", barrier, strings.Join(programs, " "))
	}
	// Remove all idle barriers at once: none may be idle only because of another.
	for _, p := range protocols {
		if x := explore(p.make(), slices.Collect(maps.Keys(idle))...); x.failure != "" {
			t.Errorf("%s fails without all of the idle barriers: %s", p.name, x.failure)
		}
	}
}

var row = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.* (\\d+) \\|$")

// The table of docs/mirror-format.md, section 13, must show the results of the programs.
func TestBarriersAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/mirror-format.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range row.FindAllSubmatch(text, -1) {
		documented[string(m[1])] = string(m[2])
	}
	found := needed()
	for barrier, programs := range found {
		if n := strconv.Itoa(len(programs)); documented[barrier] != n {
			t.Errorf("%s: %s programs fail without it, docs/mirror-format.md says %q", barrier, n, documented[barrier])
		}
	}
	for barrier := range documented {
		if _, ok := found[barrier]; !ok {
			t.Errorf("docs/mirror-format.md has the barrier %s, which no program has", barrier)
		}
	}
}
