package cli

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/flowtally/flowtally/cmd/internal/usage"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// instanceName is the name of an instance; it becomes part of paths.
type instanceName string

// UnmarshalText is called by the parser, for the flag and for the environment. An empty variable counts as unset.
func (n *instanceName) UnmarshalText(text []byte) error {
	if len(text) > 0 {
		if err := dataplane.ValidateInstance(string(text)); err != nil {
			return err
		}
	}
	*n = instanceName(text)
	return nil
}

// instanceFlag names an instance, and with it its mirror.
type instanceFlag struct {
	Instance instanceName `help:"The instance: names the mirror and the control socket." default:"default" env:"FLOWTALLY_INSTANCE" placeholder:"NAME"`
	Mirror   string       `help:"The mirror's file. Empty: INSTANCE.mirror in /run/flowtally, /dev/shm/flowtally or flowtally in $$XDG_RUNTIME_DIR." env:"FLOWTALLY_MIRROR" placeholder:"PATH"`
}

// readerFlag names a mirror to read.
type readerFlag struct {
	instanceFlag
	Owner []uint32 `help:"Trust a mirror that this user id owns, beside root's and one's own. May be repeated." placeholder:"UID"`
}

// nameInstance chooses the name of an instance: from the flag, else from the file, else from the environment.
func nameInstance(flag instanceName, file string) (string, error) {
	var env instanceName
	if err := env.UnmarshalText([]byte(os.Getenv("FLOWTALLY_INSTANCE"))); err != nil {
		return "", fmt.Errorf("FLOWTALLY_INSTANCE: %w", err)
	}
	return cmp.Or(string(flag), file, string(env), "default"), nil
}

// names gives settle access to these flags in any command.
func (f *instanceFlag) names() *instanceFlag { return f }

// settle resolves --instance against --mirror and their environment variables, because each of them names a mirror. The
// command line beats the environment, and giving both flags is an error. named is the instance named by the user, if any:
// commands that talk to an instance refuse to talk to a different one.
func settle(ctx *kong.Context) (named string, err error) {
	given := make(map[string]bool)
	for _, p := range ctx.Path {
		if p.Flag != nil {
			given[p.Flag.Name] = true
		}
	}
	for _, f := range ctx.Flags() {
		inEnvironment := slices.ContainsFunc(f.Envs, func(env string) bool { return os.Getenv(env) != "" })
		if f.Name == "instance" && (given[f.Name] || inEnvironment) {
			named = fmt.Sprint(f.Target.Interface())
		}
	}

	node := ctx.Selected()
	if node == nil || !given["instance"] {
		return named, nil
	}
	command := node.Target.Addr().Interface()
	reads, is := command.(interface{ names() *instanceFlag })
	switch {
	case !is:
		return named, nil
	case !given["mirror"]:
		reads.names().Mirror = "" // of the environment
		return named, nil
	}
	if e, is := command.(*exportCmd); is && e.Conditions {
		return named, nil // the instance names the control socket, beside the mirror
	}
	return named, withHint(usagef("--mirror and --instance: each names the mirror"), "%s --help # give one of the two", usage.CommandPath(node))
}

// writtenPath returns the path at which this user's processes would write the mirror.
func (f instanceFlag) writtenPath() string {
	if f.Mirror != "" {
		return f.Mirror
	}
	return shm.DefaultPath(string(f.Instance))
}

// readPath returns the path of the existing mirror, wherever its writer put it.
func (f instanceFlag) readPath(o shm.ReaderOptions) (string, error) {
	if f.Mirror != "" {
		return f.Mirror, nil
	}
	path, err := shm.Locate(string(f.Instance), o)
	if err != nil {
		return "", mirrorError(path, err)
	}
	return path, nil
}
