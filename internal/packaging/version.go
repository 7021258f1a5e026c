package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ofCommit returns the version of the commit that is checked out, and its time.
func ofCommit() (version string, at time.Time, err error) {
	described, err := git("describe", "--tags", "--always", "--dirty", "--long", "--match", "v[0-9]*")
	if err != nil {
		return "", time.Time{}, err
	}
	text, err := git("log", "-1", "--format=%ct")
	if err != nil {
		return "", time.Time{}, err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("git log: reading the time of the commit: %w", err)
	}
	at = time.Unix(seconds, 0).UTC()
	return versionOf(described, at), at, nil
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if exit, ok := err.(*exec.ExitError); ok {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w; -version and SOURCE_DATE_EPOCH stand in for git", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// described is the output of git describe --long: a tag, the commits since, and the commit.
var described = regexp.MustCompile(`^(?:v(.+)-(\d+)-g)?([0-9a-f]+)(-dirty)?$`)

// versionOf returns the version in the form of the package managers. A tag v1.2.3 is 1.2.3, v1.2.3-rc1 is 1.2.3~rc1,
// which sorts before 1.2.3, and a commit after a tag sorts behind the tag, by its time.
func versionOf(text string, at time.Time) string {
	m := described.FindStringSubmatch(text)
	if m == nil {
		m = []string{"", "", "", "unknown", ""}
	}
	tag, since, commit, dirty := m[1], m[2], m[3], m[4] != ""
	version := "0.0.0"
	if tag != "" {
		version = strings.NewReplacer("-", "~").Replace(tag)
	}
	if since != "0" || dirty {
		version += "+" + at.Format("20060102150405") + ".g" + commit
	}
	if dirty {
		version += ".dirty"
	}
	return version
}
