package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
)

// versionCmd prints the versions of this program and of its protocols.
type versionCmd struct {
	outputFlag
}

// versions is the JSON of version.
type versions struct {
	Schema  int    `json:"schema"`
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	Plugin  int    `json:"plugin_protocol"`
	Mirror  int    `json:"mirror_format"`
}

func (c *versionCmd) Run(env *Env) error {
	v := readVersions()
	if c.json() {
		return format.JSON(env.Stdout, v)
	}
	_, err := fmt.Fprint(env.Stdout, v)
	return err
}

// versionFlag is --version, which prints the versions and ignores the rest of the command line.
type versionFlag bool

// BeforeReset is called by the parser where the flag is given.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	fmt.Fprint(app.Stdout, readVersions())
	app.Exit(exitOK)
	return nil
}

func (v versions) String() string {
	return fmt.Sprintf("flowtally %s\ncommit %s\n%s\nplugin protocol %d\nmirror format %d\n",
		v.Version, v.Commit, v.Go, v.Plugin, v.Mirror)
}

// readVersions returns the versions of this binary. The module's version and the commit come from the data that the go
// command puts into it; a commit built from a changed tree is marked.
func readVersions() versions {
	v := versions{
		Schema:  1,
		Version: "unknown",
		Commit:  "unknown",
		Go:      fmt.Sprintf("%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH),
		Plugin:  plugin.ProtocolVersion,
		Mirror:  shm.Version,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.modified" && s.Value == "true" {
			v.Commit += " (modified)"
		}
	}
	return v
}
