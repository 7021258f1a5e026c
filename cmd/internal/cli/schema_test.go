package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/flowtally/flowtally/cmd/internal/explain"
	"github.com/flowtally/flowtally/cmd/internal/reload"
	"github.com/flowtally/flowtally/cmd/internal/replay"
	"github.com/flowtally/flowtally/cmd/internal/selftest"
	"github.com/flowtally/flowtally/cmd/internal/usage"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/internal/lab/golden"
	"github.com/flowtally/flowtally/internal/lab/schema"
)

var update = flag.Bool("update", false, "write docs/schema anew; no field is ever removed there")

// outputs returns the types that each command prints with -o json. CONTRIBUTING.md says how to add a command.
func outputs() map[string][]any {
	return map[string][]any{
		"check":               {checkedMirrorJSON{}, checkedConfigJSON{}},
		"demo":                {demo.Report{}},
		"doctor":              {view.ChecksJSON{}},
		"explain":             {explain.ExplanationJSON{}, explain.ClassifierJSON{}},
		"flows add":           {view.AddedJSON{}},
		"flows list":          {view.FlowsJSON{}},
		"apply":               {reload.Changes{}},
		"instances":           {InstancesJSON{}},
		"get":                 {view.ReadingJSON{}},
		"queue-pairs list":    {view.QueuePairsJSON{}},
		"queue-pairs post":    {view.PostedJSON{}},
		"queue-pairs reserve": {view.QueuePairsJSON{}},
		"top":                 {view.TopJSON{}},
		"replay":              {replay.ReportJSON{}},
		"selftest":            {selftest.Report{}},
		"version":             {versions{}},
		"wait":                {view.ReadingJSON{}},
		"watch":               {view.ChangeJSON{}, view.LostJSON{}, view.SumChangeJSON{}},
	}
}

// documented lists the packages whose comments become the descriptions in the schemas.
func documented() []string {
	return []string{"cmd/internal/cli", "cmd/internal/explain", "cmd/internal/reload", "cmd/internal/replay", "cmd/internal/selftest", "cmd/internal/view", "internal/lab/demo"}
}

// schemaDir holds the schema of each command.
const schemaDir = "../../../docs/schema"

func schemaFile(dir, command string) string {
	return filepath.Join(dir, strings.ReplaceAll(command, " ", "-")+".json")
}

// Programs read the JSON, so a field once in docs/schema stays for ever.
func TestSchemasMatchTheTypesAndLoseNoField(t *testing.T) {
	docs, err := schema.ReadDocs("github.com/flowtally/flowtally", "../../..", documented()...)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(schemaDir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for command, values := range outputs() {
		path := schemaFile(schemaDir, command)
		files = slices.DeleteFunc(files, func(f string) bool { return f == path })
		var types []reflect.Type
		for _, v := range values {
			types = append(types, reflect.TypeOf(v))
		}
		title := "flowtally " + command + " -o json"
		now, err := schema.Of(title, docs, types...)
		if err != nil {
			t.Fatal(err)
		}
		old, err := schema.Read(path)
		if err != nil && !(*update && errors.Is(err, fs.ErrNotExist)) {
			t.Fatal(err)
		}
		if lost := schema.Lost(old, now); len(lost) > 0 {
			t.Errorf("%s: programs rely on it:\n%s", path, strings.Join(lost, "\n"))
			continue
		}
		if first := firstWith(values); first != command {
			now = schema.Same(title, schemaFile("", first))
		}
		text, err := schema.Text(now)
		if err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, path, text, *update)
	}
	if len(files) > 0 {
		t.Errorf("no command prints %v", files)
	}
}

// firstWith returns the first command, by name, that prints values of these types.
func firstWith(values []any) string {
	all := outputs()
	commands := slices.Sorted(maps.Keys(all))
	return commands[slices.IndexFunc(commands, func(c string) bool { return reflect.DeepEqual(all[c], values) })]
}

func TestEveryOutputHasASchema(t *testing.T) {
	var r root
	parser, err := newParser(&r, &bytes.Buffer{}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	all := outputs()
	for _, leaf := range parser.Model.Leaves(false) {
		command := wordsOf(leaf)
		has := slices.ContainsFunc(leaf.Flags, func(f *kong.Flag) bool { return f.Name == "output" })
		if has != (all[command] != nil) {
			t.Errorf("%s has -o json: %v; outputs() has it: %v", command, has, !has)
		}
	}
}

// wordsOf returns the words of a command without the program's.
func wordsOf(n *kong.Node) string { return strings.TrimPrefix(usage.CommandPath(n), "flowtally ") }

// schemasSeen names the file to which checkedMain adds each command whose output it has compared.
const schemasSeen = "FLOWTALLY_SCHEMAS_SEEN"

// checkedMain is Main for the scripts. It compares the JSON printed by a command with the command's schema.
func checkedMain(ctx context.Context) int {
	command := jsonCommand(os.Args[1:])
	dir := os.Getenv("FLOWTALLY_SCHEMAS")
	if command == "" || dir == "" {
		return Main(ctx, os.Stdin, os.Stdout, os.Stderr, os.Args[1:])
	}
	var out bytes.Buffer
	code := Main(ctx, os.Stdin, io.MultiWriter(os.Stdout, &out), os.Stderr, os.Args[1:])
	if out.Len() == 0 {
		return code
	}
	of, err := schema.Read(schemaFile(dir, command))
	if err == nil {
		err = schema.Validate(of, out.Bytes())
	}
	if err == nil && os.Getenv(schemasSeen) != "" {
		err = appendLine(os.Getenv(schemasSeen), command)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "the output of %s is not of its schema: %v\n", command, err)
		return 99
	}
	return code
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// jsonCommand returns the command of a command line with -o json, or "".
func jsonCommand(args []string) string {
	var r root
	parser, err := newParser(&r, io.Discard, io.Discard)
	if err != nil {
		return ""
	}
	line, err := kong.Trace(parser, args)
	if err != nil || line.Error != nil || line.Selected() == nil {
		return ""
	}
	for _, f := range line.Selected().Flags {
		if f.Name == "output" && fmt.Sprint(line.FlagValue(f)) == "json" {
			return wordsOf(line.Selected())
		}
	}
	return ""
}

// cmdSchemas implements "schemas [but COMMAND…]": the script must have compared the output of every other command with
// its schema.
func cmdSchemas(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 && args[0] != "but" {
		ts.Fatalf("usage: schemas [but COMMAND…]")
	}
	seen := strings.Split(ts.ReadFile(ts.Getenv(schemasSeen)), "\n")
	unseen := slices.DeleteFunc(slices.Sorted(maps.Keys(outputs())), func(c string) bool { return slices.Contains(seen, c) || slices.Contains(args, c) })
	if len(unseen) > 0 {
		ts.Fatalf("this script does not run with -o json: %s", strings.Join(unseen, ", "))
	}
}
