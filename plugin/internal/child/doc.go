// Package child starts and ends one plugin process: with few capabilities, in a process group of its own, and
// with the pipes and the page by which host and plugin watch each other. It also counts crashes in the verbs
// of RDMA devices.
package child

// The variables that a host sets for its plugin.
const (
	// HostFDEnv names a descriptor. Its end of file means that the host is gone.
	HostFDEnv = "FLOWTALLY_PLUGIN_HOST_FD"
	// VerbsFDEnv names the descriptor of the page in which the plugin names each verb before it calls it.
	VerbsFDEnv = "FLOWTALLY_PLUGIN_VERBS_FD"
	// ExcludedEnv holds a JSON object: the RDMA devices that the plugin must not use, and the reasons.
	ExcludedEnv = "FLOWTALLY_PLUGIN_EXCLUDED"
	// ConfineEnv holds a JSON object, confine.Instance: the files that the plugin needs.
	ConfineEnv = "FLOWTALLY_PLUGIN_CONFINE"
	// The plugin itself sets UnconfinedEnv, to the reason why it runs unconfined.
	UnconfinedEnv = "FLOWTALLY_PLUGIN_UNCONFINED"
	// PathsEnv names files and directories that a confined process may use besides, separated by colons. A library of a
	// vendor may need one.
	PathsEnv = "FLOWTALLY_PLUGIN_PATHS"
	// RestartEnv is set where the host has run the instance before, in another process.
	RestartEnv = "FLOWTALLY_PLUGIN_RESTART"
)
