package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reproduced names, for each next step, the test that produces its cause. A key is a sentinel in the table hints, or
// the beginning of a next step that a command adds itself. The file must contain the text.
var reproduced = map[string]struct{ file, text string }{
	"plugin.ErrUntrusted":       {"badinput_linux_test.go", "func TestRootStartsNoPluginThatOthersCanWrite("},
	"plugin.ErrIncompatible":    {"../../../plugin/launch_test.go", "ErrIncompatible"},
	"plugin.ErrStart":           {"../../../plugin/launch_test.go", "ErrStart"},
	"shm.ErrInUse":              {"testdata/script/run.txtar", "stderr '  try: another --instance'"},
	"shm.ErrPermission":         {"testdata/place/place.txtar", "try: $command"},
	"shm.ErrFormat":             {"testdata/script/badmirror.txtar", "flowtally get"},
	"shm.ErrTruncated":          {"badinput_linux_test.go", "func TestReaderOfATruncatedMirrorEndsWithAnError("},
	"shm.ErrNotFound":           {"testdata/script/get.txtar", "try: flowtally get # lists all counters"},
	"shm.ErrFull":               {"badinput_linux_test.go", "func TestMirrorThatDoesNotFitIsRefusedWhole("},
	"shm.ErrNotAlive":           {"testdata/script/wait.txtar", "try: flowtally run --config FILE # goes on with the totals"},
	"export.ErrWebConfig":       {"testdata/script/export.txtar", "try: correct the file or the path; its parts are tls_server_config"},
	"export.ErrListen":          {"testdata/script/export.txtar", "try: --listen with another address"},
	"dataplane.ErrPermission":   {"badinput_linux_test.go", "func TestCommandsNameTheMissingPrivilegeAndTheRemedy("},
	"dataplane.ErrInUse":        {"testdata/script/run.txtar", "stderr '  try: another --instance'"},
	"dataplane.ErrFull":         {"badinput_linux_test.go", "func TestMirrorThatDoesNotFitIsRefusedWhole("},
	"dataplane.ErrCostly":       {"costly_linux_test.go", "func TestCheckRefusesACostlyConfigurationAndEachRemedyHelps("},
	"dataplane.ErrDense":        {"dense_linux_test.go", "func TestCheckRefusesMoreMatchingFlowsThanProgramsCompare("},
	"dataplane.ErrIncompatible": {"../../../xdp/takeup_linux_test.go", "ErrIncompatible"},
	"dataplane.ErrRestart":      {"testdata/script/apply.txtar", "try: stop flowtally run and start it again"},
	"dataplane.ErrUnplaced":     {"testdata/script/flows.txtar", "try: flowtally doctor"},
	"dataplane.ErrExists":       {"testdata/script/flows.txtar", "try: another name, or: flowtally flows remove NAME"},
	"dataplane.ErrNotFound":     {"testdata/script/flows.txtar", "try: flowtally flows list"},
	"dataplane.ErrNotConnected": {"testdata/script/queue-pairs.txtar", "then: flowtally queue-pairs connect alone"},

	"flowtally clean --instance NAME # or":                   {"clean_linux_test.go", "try: flowtally clean --instance NAME"},
	"flowtally apply -f FILE --instance":                     {"testdata/script/apply.txtar", "try: flowtally apply -f FILE --instance default"},
	"--instance NAME says which":                             {"testdata/script/apply.txtar", "try: --instance NAME says which"},
	"AGAIN --yes # --dry-run":                                {"testdata/script/apply.txtar", "--yes # --dry-run"},
	"flowtally instances":                                    {"clean_linux_test.go", "try: flowtally instances"},
	"stop it; in an emergency":                               {"clean_linux_test.go", "try: stop it; in an emergency"},
	"AGAIN --yes":                                            {"clean_linux_test.go", `" --yes", "clean"`},
	"-f FILE names":                                          {"testdata/script/apply.txtar", "try: -f FILE names the file"},
	"a packet in words":                                      {"testdata/script/explain.txtar", "try: a packet in words"},
	"--config FILE or --flow":                                {"testdata/script/explain.txtar", "try: --config FILE or --flow"},
	"a smaller --number":                                     {"testdata/script/explain.txtar", "try: a smaller --number"},
	"flowtally run --config FILE # writes one":               {"testdata/script/get.txtar", "# writes one"},
	"AGAIN --owner UID":                                      {"badinput_linux_test.go", "--owner UID"},
	"flowtally queue-pairs list":                             {"testdata/script/queue-pairs.txtar", "try: flowtally queue-pairs list$"},
	"flowtally queue-pairs list # says why":                  {"testdata/script/queue-pairs.txtar", "try: flowtally queue-pairs list # says why"},
	"flowtally queue-pairs list # shows":                     {"testdata/script/queue-pairs.txtar", "try: flowtally queue-pairs list # shows the outstanding operations"},
	"flowtally queue-pairs list # has":                       {"testdata/script/wait.txtar", "try: flowtally queue-pairs list"},
	"choose another name, or: flowtally queue-pairs release": {"testdata/script/queue-pairs.txtar", "try: choose another name, or: flowtally queue-pairs release app$"},
	"flowtally run --config FILE # or":                       {"testdata/script/run.txtar", "try: flowtally run --config FILE"},
	"check the path; configs":                                {"testdata/script/config.txtar", "try: check the path; configs/default.yaml"},
	"flowtally run --config FILE # starts":                   {"testdata/script/flows.txtar", "try: flowtally run --config FILE # starts an instance"},
	"ulimit -n 8192":                                         {"testdata/script/refused.txtar", "try: ulimit -n 8192"},
	"the path of a file in this directory":                   {"testdata/script/refused.txtar", "try: the path of a file in this directory"},
	"decompress it first":                                    {"inflated_test.go", "try: decompress it first"},
	"capinfos or tcpdump":                                    {"testdata/script/replay.txtar", "try: capinfos or tcpdump -r"},
	"check the path; - is":                                   {"testdata/script/replay.txtar", "try: check the path; - is standard input"},
	"flowtally flows add --help":                             {"testdata/script/flows.txtar", "try: flowtally flows add --help"},
	"tcpdump -i NAME -w FILE":                                {"testdata/script/replay.txtar", "try: tcpdump -i NAME -w FILE"},
	"--interface NAME, which is one of":                      {"testdata/script/selftest.txtar", "try: --interface NAME, which is one of"},
	"a longer --timeout":                                     {"testdata/script/wait.txtar", "try: a longer --timeout"},
	"a longer --timeout; a plugin":                           {"silence_linux_test.go", "try: a longer --timeout; a plugin"},
	"--socket PATH # instance … counts":                      {"testdata/script/flows.txtar", "try: --socket PATH # instance"},
	"give one of --socket and --instance":                    {"testdata/script/usage.txtar", "try: give one of --socket and --instance"},
	"… --help # give one of the two":                         {"testdata/script/usage.txtar", "try: flowtally get --help # give one of the two"},
	"--interface NAME of an interface that is up":            {"testdata/script/selftest.txtar", "try: --interface NAME of an interface that is up"},
}

// notReproduced has the next steps without a test that produces their cause, each with the reason.
var notReproduced = map[string]string{
	"shm.ErrNotReady":          "the moment between making a mirror and its first cycle cannot be held from outside a process",
	"shm.ErrBusy":              "a reader meets it only if the writer rewrites one block throughout its bounded retries",
	"shm.ErrGone":              "commands look a counter up by name, and find it or not, so the state between lasts one poll cycle",
	"dataplane.ErrUnavailable": "a plugin that is being started again: the command meets it for milliseconds",
	"dataplane.ErrClosed":      "an instance that ends removes its socket before it refuses calls",
	"probe.ErrNotSupported":    "every error of this kind has a fix of its own, which goes before the table",
	"os.ErrPermission":         "tests run as root, which may read every file; TestCommandsNameTheMissingPrivilegeAndTheRemedy has the commands' own errors",

	"plugin.ErrLeft":                      "it needs a bpffs that lets a process pin and not unpin",
	"flowtally clean --instance …":        "the same",
	"make build, or --plugin PATH":        "the test's own binary is the plugin",
	"install gcc":                         "the tests need gcc themselves",
	"SUDO":                                "the demo's tests run as root",
	"this is a defect of flowtally":       "it needs a defect",
	"SUDO # or as the user who":           "it needs an instance of another user",
	"SUDO # or with --socket":             "tests run as root, which may make a socket anywhere",
	"install flowtally-plugin beside":     "the test's own binary is the plugin; doctor.txtar has the same step",
	"look for a stuck process":            "it needs a poller that is stuck for 10 s before its first cycle",
	"AGAIN # goes on":                     "it needs a signal between two lines of a script",
	"mirror.history in the configuration": "mirrors of the tests keep a history",
}

// Each next step needs a test that produces its cause, or a reason why there is none.
func TestHintsAreReproduced(t *testing.T) {
	used := make(map[string]bool)
	have := func(key string) bool {
		_, why := notReproduced[key]
		_, how := reproduced[key]
		if how && why {
			t.Errorf("%q is in both tables", key)
		}
		used[key] = used[key] || how || why
		return how || why
	}
	for name := range hintsBySentinel(t) {
		if !have(name) {
			t.Errorf("the next step of %s is in no table", name)
		}
	}
	for _, h := range ownHints(t) {
		longest := ""
		for key := range reproduced {
			if strings.HasPrefix(h[2], key) && len(key) > len(longest) {
				longest = key
			}
		}
		for key := range notReproduced {
			if strings.HasPrefix(h[2], key) && len(key) > len(longest) {
				longest = key
			}
		}
		if !have(longest) {
			t.Errorf("the next step %q of %s is in no table", h[2], h[0])
		}
	}
	for key, r := range reproduced {
		text, err := os.ReadFile(filepath.FromSlash(r.file))
		if err != nil || !strings.Contains(string(text), r.text) {
			t.Errorf("%s: %s does not have %q: %v", key, r.file, r.text, err)
		}
		if !used[key] {
			t.Errorf("no command prints the next step of %q", key)
		}
	}
	for key := range notReproduced {
		if !used[key] {
			t.Errorf("no command prints the next step of %q", key)
		}
	}
	t.Logf("%d next steps have a test that produces the cause, %d have a reason why not", len(reproduced), len(notReproduced))
}
