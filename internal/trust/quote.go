package trust

import (
	"regexp"
	"strings"
)

// plainPath matches paths that need no quotes in a shell.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Quote quotes a path for a shell if necessary.
func Quote(path string) string {
	if plainPath.MatchString(path) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
