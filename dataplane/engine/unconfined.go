package engine

import "github.com/flowtally/flowtally/dataplane"

// unconfined returns the condition of a process that its kernel does not keep to its files, and the reason why; none
// without a reason.
func unconfined(instance, reason string) []dataplane.Condition {
	if reason == "" {
		return nil
	}
	return []dataplane.Condition{{
		Code: dataplane.CodePluginUnconfined, Severity: dataplane.Low, Object: instance,
		Text: "the process that counts is not confined to its files: " + reason,
		Fix:  "run a kernel with Landlock (CONFIG_SECURITY_LANDLOCK=y, and landlock in lsm=), and allow landlock_* in the system calls of the container or the unit",
	}}
}
