package plugintest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// ReserveWords implements dataplane.Service. Programs cannot take the words of a Fake.
func (f *Fake) ReserveWords(ctx context.Context, name string) (dataplane.ReservedWords, error) {
	if err := f.enter(ctx); err != nil {
		return dataplane.ReservedWords{}, err
	}
	defer f.mu.Unlock()
	if err := flow.ValidateName(name); err != nil {
		return dataplane.ReservedWords{}, fmt.Errorf("reserving words %q: %w: %w", name, dataplane.ErrInvalid, err)
	}
	_, placed := f.placed[name]
	if _, there := f.words[name]; there || placed {
		return dataplane.ReservedWords{}, fmt.Errorf("reserving words %q: %w", name, dataplane.ErrExists)
	}
	f.next++
	w := dataplane.ReservedWords{Name: name, Counter: dataplane.Handle{Index: f.next - 1, Generation: 1}, State: dataplane.WordsFree, Since: time.Now()}
	f.words[name] = w
	return w, nil
}

// ReleaseWords implements dataplane.Service.
func (f *Fake) ReleaseWords(ctx context.Context, name string) error {
	if err := f.enter(ctx); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if _, there := f.words[name]; !there {
		return fmt.Errorf("releasing words %q: %w", name, dataplane.ErrNotFound)
	}
	delete(f.words, name)
	return nil
}

// ReservedWords implements dataplane.Service.
func (f *Fake) ReservedWords(ctx context.Context) ([]dataplane.ReservedWords, error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	out := []dataplane.ReservedWords{}
	for _, name := range slices.Sorted(maps.Keys(f.words)) {
		out = append(out, f.words[name])
	}
	return out, nil
}
