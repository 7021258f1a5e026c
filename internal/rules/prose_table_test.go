package rules

// tolerated is the number of uses of the dialect that an area still has. A row may only fall, and goes at 0.
// A file belongs to the row with the longest prefix; files without a row have no use.
var tolerated = map[string]int{
	"dataplane": 11,
	"plugin":    21,
}
