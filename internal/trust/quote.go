package trust

import (
	"regexp"
	"strings"
)

// plainPath matches a path that needs no quotes in a shell.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Quote writes a path for a shell, as the commands in reasons do.
func Quote(path string) string {
	if plainPath.MatchString(path) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
