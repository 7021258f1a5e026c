package plugin

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	goplugin "github.com/hashicorp/go-plugin"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/confine"
	"github.com/flowtally/flowtally/plugin/internal/child"
)

// Confine keeps this process, for good, to the files of the instance for which the host has started it: the mirror, the
// pins, the devices and the libraries. The main function of a plugin whose process is the instance's alone calls it before
// it opens anything. Without a host it does nothing. Where the kernel cannot confine, the instance runs and has the
// condition [dataplane.CodePluginUnconfined].
//
// The process executes itself once more. Landlock gives each thread credentials of its own, and an RDMA device takes
// commands only from the credentials that have opened it (ib_safe_file_access, include/rdma/ib.h). After the execution
// there is one thread, and all others inherit from it.
func Confine() {
	text := os.Getenv(child.ConfineEnv)
	if text == "" {
		return
	}
	os.Unsetenv(child.ConfineEnv)

	var i confine.Instance
	err := json.Unmarshal([]byte(text), &i)
	if err == nil {
		files := i.Files(os.Getenv(goplugin.EnvUnixSocketDir))
		files.All = filepath.SplitList(os.Getenv(child.PathsEnv))
		err = confine.Process(files)
	}
	if err != nil {
		os.Setenv(child.UnconfinedEnv, err.Error())
		return
	}

	err = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	fmt.Fprintln(os.Stderr, "executing the confined plugin:", err)
	os.Exit(1)
}

// confineEnvironment tells the plugin's process for which files it is started.
func confineEnvironment(cfg dataplane.Config) (string, error) {
	text, err := json.Marshal(confine.Instance{
		Mirror:    cfg.MirrorPath(),
		Pins:      cfg.PinDir(),
		Libraries: []string{cfg.RDMA.Library, cfg.RDMA.MLX5, cfg.RDMA.EFA},
	})
	if err != nil {
		return "", fmt.Errorf("naming the plugin's files: %w", err)
	}
	return child.ConfineEnv + "=" + string(text), nil
}
