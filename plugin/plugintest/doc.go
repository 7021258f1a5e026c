// Package plugintest is for authors of a plugin, or of a program on top of one: [Fake] is an instance in memory,
// [Pair] puts any Service behind the wire in one process, and [Conformance] holds a Service against its contract.
//
//	func TestService(t *testing.T) {
//		plugintest.Conformance(t, func() dataplane.Service { return newMine(t) })
//	}
//	func TestOverTheWire(t *testing.T) {
//		plugintest.Conformance(t, func() dataplane.Service { return plugintest.Pair(t, newMine(t)) })
//	}
package plugintest
