package rules

// tolerated is the number of uses of the dialect that an area still has. A row may only fall, and goes at 0.
// A file belongs to the row with the longest prefix; files without a row have no use.
var tolerated = map[string]int{
	"dataplane": 139,
	"plugin":    21,
}

// longPackageComments are the words of package comments that are still too long.
var longPackageComments = map[string]int{}

// longLines is the number of lines over 120 characters that a document still has.
var longLines = map[string]int{}
