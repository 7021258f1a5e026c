package xdp

import (
	"os"
	"regexp"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// The test compiles each match in the table of docs/flows.md. If the compiler ignored a word, the match would have the same rules
// as the match without that word.
func TestEachMatchOfTheDocumentHasRulesOfItsOwn(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/flows.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(.+?)` \\| yes \\| yes \\|").FindAllSubmatch(doc, -1)
	if len(rows) < 50 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	type masked struct{ key, mask, ports any }
	had := map[masked]string{}
	for _, row := range rows {
		text := string(row[1])
		rules, err := compile(backend.Placed{Flow: flow.MustParse("m", text)}, 0, nil)
		if err != nil || len(rules) == 0 {
			t.Errorf("%s: %d rules, %v", text, len(rules), err)
			continue
		}
		at := masked{rules[0].Key, rules[0].Mask, rules[0].Ports}
		if same, ok := had[at]; ok {
			t.Errorf("%s and %s are one rule", text, same)
		}
		had[at] = text
	}
}
