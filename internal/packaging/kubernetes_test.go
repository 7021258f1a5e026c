package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/flowtally/flowtally/configs"
)

// objects decodes the documents of a file of configs/kubernetes, and fails at a field that its type does not have.
func objects(t *testing.T, file string) (all []any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "configs", "kubernetes", file))
	if err != nil {
		t.Fatal(err)
	}
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		types := map[string]any{"Namespace": new(corev1.Namespace), "ConfigMap": new(corev1.ConfigMap), "DaemonSet": new(appsv1.DaemonSet), "Pod": new(corev1.Pod)}
		o := types[kind.Kind]
		if o == nil {
			t.Fatalf("%s: kind %q", file, kind.Kind)
		}
		if err := yaml.UnmarshalStrict(document, o); err != nil {
			t.Errorf("%s: %s: %v", file, kind.Kind, err)
		}
		all = append(all, o)
	}
	return all
}

// first returns the object of a type.
func first[T any](t *testing.T, all []any) T {
	t.Helper()
	for _, o := range all {
		if v, ok := o.(T); ok {
			return v
		}
	}
	t.Fatal("the file lacks an object")
	panic("unreachable")
}

// unitCapabilities are the capabilities that the systemd unit grants, as Kubernetes names them.
func unitCapabilities(t *testing.T) (names []corev1.Capability) {
	t.Helper()
	unit, err := os.ReadFile(filepath.Join("..", "..", "configs", "systemd", "flowtally.service"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(unit)) {
		if value, ok := strings.CutPrefix(line, "CapabilityBoundingSet="); ok {
			for name := range strings.FieldsSeq(value) {
				names = append(names, corev1.Capability(strings.TrimPrefix(name, "CAP_")))
			}
		}
	}
	return names
}

// mounts returns the volumes of a container by the path at which it mounts them. Each must exist.
func mounts(t *testing.T, spec corev1.PodSpec) map[string]corev1.VolumeMount {
	t.Helper()
	at := make(map[string]corev1.VolumeMount)
	for _, m := range spec.Containers[0].VolumeMounts {
		if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("%s mounts volume %s, which the pod does not have", m.MountPath, m.Name)
		}
		at[m.MountPath] = m
	}
	return at
}

// confined fails unless the container has those capabilities and no others, and cannot write to its image.
func confined(t *testing.T, c corev1.Container, capabilities []corev1.Capability) {
	t.Helper()
	s := c.SecurityContext
	if s == nil || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, capabilities) {
		t.Fatalf("%s: capabilities %+v, want %v and no others", c.Name, s, capabilities)
	}
	if s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Privileged != nil {
		t.Errorf("%s: %+v", c.Name, s)
	}
}

// The manifests decode strictly, the DaemonSet grants the capabilities of the systemd unit, its configuration is one
// that flowtally takes, and a reader has no privilege and mounts the mirrors read-only.
func TestManifestsGrantWhatTheUnitHas(t *testing.T) {
	all := objects(t, "flowtally.yaml")
	set, config := first[*appsv1.DaemonSet](t, all), first[*corev1.ConfigMap](t, all)
	spec := set.Spec.Template.Spec
	c := spec.Containers[0]
	confined(t, c, unitCapabilities(t))
	if !spec.HostNetwork || *spec.TerminationGracePeriodSeconds < 30 || c.StartupProbe == nil || c.ReadinessProbe == nil {
		t.Errorf("%+v", spec)
	}
	for label, value := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Labels[label] != value {
			t.Errorf("the pods lack the label %s=%s by which the DaemonSet finds them", label, value)
		}
	}
	at := mounts(t, spec)
	for _, path := range []string{"/run/flowtally", "/run/flowtally-control", "/sys/fs/bpf", "/tmp"} {
		if m, ok := at[path]; !ok || m.ReadOnly {
			t.Errorf("%s is not a writable mount", path)
		}
	}
	file := c.Args[len(c.Args)-1]
	text, ok := config.Data[filepath.Base(file)]
	if _, mounted := at[filepath.Dir(file)]; !ok || !mounted {
		t.Errorf("the ConfigMap does not become %s", file)
	}
	if _, err := configs.Parse(file, []byte(text)); err != nil {
		t.Errorf("the configuration: %v", err)
	}

	pod := first[*corev1.Pod](t, objects(t, "reader.yaml"))
	confined(t, pod.Spec.Containers[0], nil)
	if m := mounts(t, pod.Spec)["/run/flowtally"]; !m.ReadOnly {
		t.Error("the reader can write to the mirrors")
	}
	if s := pod.Spec.Containers[0].SecurityContext; s.RunAsNonRoot == nil || !*s.RunAsNonRoot || pod.Spec.HostNetwork {
		t.Errorf("the reader has more than it needs: %+v", s)
	}
}
