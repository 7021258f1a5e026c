package plugin

import (
	"context"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// The calls about reserved words, in the Client, in remote and in the server.

// ReserveWords implements dataplane.Service. A restarted plugin reserves the words again, and programs must take them again.
func (c *Client) ReserveWords(ctx context.Context, name string) (dataplane.ReservedWords, error) {
	got := make(chan dataplane.ReservedWords, 1)
	err := c.change(ctx, change{
		rpc: func(ctx context.Context, s *session) error {
			w, err := s.svc.ReserveWords(context.WithoutCancel(ctx), name)
			got <- w
			return err
		},
		note: func() { c.words[name] = true },
	})
	if err != nil {
		return dataplane.ReservedWords{}, err
	}
	return <-got, nil
}

// ReleaseWords implements dataplane.Service.
func (c *Client) ReleaseWords(ctx context.Context, name string) error {
	return c.change(ctx, change{
		rpc: func(ctx context.Context, s *session) error {
			return s.svc.ReleaseWords(context.WithoutCancel(ctx), name)
		},
		note: func() { c.words[name] = false },
	})
}

// keepWords applies the calls of ReserveWords and ReleaseWords to a configuration, which may be nil. The caller holds
// changing.
func (c *Client) keepWords(cfg *pluginv1.Config) {
	if cfg == nil {
		return
	}
	cfg.Words = slices.Clone(cfg.Words) // the backing array belongs to the caller
	for name, reserved := range c.words {
		cfg.Words = slices.DeleteFunc(cfg.Words, func(s string) bool { return s == name })
		if reserved {
			cfg.Words = append(cfg.Words, name)
		}
	}
}

// ReservedWords implements dataplane.Service.
func (c *Client) ReservedWords(ctx context.Context) ([]dataplane.ReservedWords, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	list, err := s.svc.ReservedWords(ctx)
	return list, c.sessionError(ctx, s, err)
}

// reservedWords makes the only RPC about reserved words. The request says whether to reserve, to release or to list.
func (r *remote) reservedWords(ctx context.Context, req *pluginv1.ReservedWordsRequest) ([]dataplane.ReservedWords, error) {
	resp, err := call(ctx, r, r.rpc.ReservedWords, req)
	out := make([]dataplane.ReservedWords, len(resp.GetWords()))
	for i, w := range resp.GetWords() {
		out[i] = dataplane.ReservedWords{
			Name:    w.GetName(),
			Counter: dataplane.Handle{Index: w.GetCounterIndex(), Generation: w.GetCounterGeneration()},
			State:   dataplane.WordsState(w.GetState()),
			Since:   timeFromProto(w.GetSince()),
		}
	}
	return out, err
}

func (r *remote) ReserveWords(ctx context.Context, name string) (dataplane.ReservedWords, error) {
	name = text(name) // protobuf needs UTF-8; the replaced name is just as invalid
	out, err := r.reservedWords(ctx, &pluginv1.ReservedWordsRequest{Reserve: &name})
	if err == nil && len(out) != 1 {
		err = fmt.Errorf("reserving words %q: %w: the plugin returned %d", name, ErrIncompatible, len(out))
	}
	if err != nil {
		return dataplane.ReservedWords{}, err
	}
	return out[0], nil
}

func (r *remote) ReleaseWords(ctx context.Context, name string) error {
	name = text(name)
	_, err := r.reservedWords(ctx, &pluginv1.ReservedWordsRequest{Release: &name})
	return err
}

func (r *remote) ReservedWords(ctx context.Context) ([]dataplane.ReservedWords, error) {
	return r.reservedWords(ctx, &pluginv1.ReservedWordsRequest{})
}

func (s *server) ReservedWords(ctx context.Context, req *pluginv1.ReservedWordsRequest) (*pluginv1.ReservedWordsResponse, error) {
	svc, err := s.service()
	if err != nil {
		return nil, toStatus(err)
	}

	var list []dataplane.ReservedWords
	switch {
	case req.Reserve != nil:
		s.asked(ctx, "reserving words")
		var reserved dataplane.ReservedWords
		reserved, err = svc.ReserveWords(ctx, req.GetReserve())
		list = append(list, reserved)
	case req.Release != nil:
		s.asked(ctx, "releasing words")
		err = svc.ReleaseWords(ctx, req.GetRelease())
	default:
		list, err = svc.ReservedWords(ctx)
	}
	if err != nil {
		return nil, toStatus(err)
	}

	out := &pluginv1.ReservedWordsResponse{}
	for _, w := range list {
		out.Words = append(out.Words, &pluginv1.Words{
			Name:              text(w.Name),
			CounterIndex:      w.Counter.Index,
			CounterGeneration: w.Counter.Generation,
			State:             text(string(w.State)),
			Since:             timeToProto(w.Since),
		})
	}
	return out, nil
}
