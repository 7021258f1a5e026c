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

// Confine restricts this process, irreversibly, to the files of its instance: the mirror, the pins, the devices and the
// libraries. Call it first in the main function of a plugin, unless the process also does other work. It does nothing in a
// process without a host. If the kernel cannot confine, the instance raises [dataplane.CodePluginUnconfined].
//
// Confine executes the binary a second time. The reason: Landlock gives each thread its own credentials, and an RDMA device
// only accepts commands from the credentials that have opened it (ib_safe_file_access, include/rdma/ib.h). After the
// execution there is one thread, and all later threads inherit its credentials.
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

// confineEnvironment returns the environment variable that tells Confine the files of the instance.
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
