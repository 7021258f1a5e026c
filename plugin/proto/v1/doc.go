// Package pluginv1 is generated from flowtally.proto, which is the
// specification of the control protocol; package plugin speaks it.
// Regenerating needs protoc; building does not.
package pluginv1

//go:generate sh generate.sh
