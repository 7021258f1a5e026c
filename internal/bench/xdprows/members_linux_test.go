package xdprows

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/xdp/members"
)

// overlapping draws prefixes of a few regions, of all lengths.
func overlapping(g *rand.Rand) netip.Prefix {
	if g.IntN(2) == 0 {
		a := 10<<24 | g.Uint32N(3)<<16 | g.Uint32N(2)<<8 | g.Uint32N(256)
		length := 14 + g.IntN(19)
		if g.IntN(50) == 0 {
			length = g.IntN(14)
			a |= g.Uint32() & 0xf0000000
		}
		return netip.PrefixFrom(addr4(a), length).Masked()
	}
	hi := 0x2001_0db8_0000_0000 | g.Uint64N(2)<<32 | g.Uint64N(3)<<16 | g.Uint64N(2)
	length := 20 + g.IntN(109)
	if g.IntN(50) == 0 {
		length = g.IntN(20)
		hi ^= g.Uint64() << 48
	}
	return netip.PrefixFrom(addr6(hi, g.Uint64N(2)<<60|g.Uint64N(3)), length).Masked()
}

// covers reports whether an element of the set has the address.
func covers(set map[netip.Prefix]bool, a netip.Addr) bool {
	for length := range a.BitLen() + 1 {
		if p, _ := a.Prefix(length); set[p] {
			return true
		}
	}
	return false
}

// answers runs the programs of both versions over a trace, and returns their answers.
func (r *memberRig) answers(ctx context.Context, list []netip.Addr) ([]bool, error) {
	if err := r.ask(list); err != nil {
		return nil, err
	}
	is := make([]bool, len(list))
	for _, program := range []string{"members_ours4", "members_ours6"} {
		if err := r.coll.Maps[".data.at"].Put(uint32(0), uint64(0)); err != nil {
			return nil, err
		}
		if _, err := r.side(program)(ctx, len(list)); err != nil {
			return nil, err
		}
		for i, a := range list {
			if a.Is4() != (program == "members_ours4") {
				continue
			}
			var v uint64
			if err := r.coll.Maps["members_answers"].Lookup(uint32(i), &v); err != nil {
				return nil, err
			}
			is[i] = v != 0
		}
	}
	return is, nil
}

func TestProgramsFindWhatPrefixesCoverAfterEachChange(t *testing.T) {
	need.BPF(t)
	// Of few elements, a line has a number. Of many, its place is fixed.
	for _, shape := range []members.Shape{{IPv4: 3000, IPv6: 3000}, {IPv4: 1 << 16, IPv6: 1 << 16}} {
		r, err := newMemberRig(memberSections{shape: shape, keep: true})
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		g := rand.New(rand.NewPCG(seed, uint64(shape.IPv4)))
		live := map[netip.Prefix]bool{}
		var known []netip.Prefix
		for range 60 {
			for range 1 + g.IntN(60) {
				p := overlapping(g)
				if len(known) > 0 && g.IntN(2) == 0 {
					p = known[g.IntN(len(known))]
				}
				known = append(known, p)
				r.set.Reclaim() // no program runs
				change := r.set.Add
				if live[p] {
					change = r.set.Remove
				}
				if did, err := change(p); !did || err != nil {
					t.Fatalf("%v: %v, %v", p, did, err)
				}
				live[p] = !live[p]
			}

			list := make([]netip.Addr, 400)
			for i := range list {
				list[i] = overlapping(g).Addr()
			}
			got, err := r.answers(t.Context(), list)
			if err != nil {
				t.Fatal(err)
			}
			for i, a := range list {
				if want := covers(live, a); got[i] != want || members.Lookup(r.words, &r.c, a) != want {
					t.Fatalf("%v is in the set: %v of the program, %v of the model, want %v", a, got[i], members.Lookup(r.words, &r.c, a), want)
				}
			}
		}
	}
}

// Programs run while elements come and go around those that stay.
func TestRunningProgramsNeverMissWhatIsCoveredThroughout(t *testing.T) {
	need.BPF(t)
	for _, of := range []struct {
		program string
		v4      bool
	}{{"members_ours4", true}, {"members_ours6", false}} {
		r, err := newMemberRig(memberSections{shape: members.Shape{IPv4: 8000, IPv6: 8000}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		g := rand.New(rand.NewPCG(seed, 3))
		draw := func() netip.Prefix {
			for {
				if p := overlapping(g); p.Addr().Is4() == of.v4 {
					return p
				}
			}
		}

		// At any instant, each address of the trace is covered by one of two elements, of which the first is the wider.
		var pairs [][2]netip.Prefix
		var list []netip.Addr
		held := map[netip.Prefix]bool{}
		for len(pairs) < 100 {
			p := draw()
			wide, _ := p.Addr().Prefix(max(0, p.Bits()-1-g.IntN(12)))
			if wide == p || held[wide] || held[p] {
				continue
			}
			held[wide], held[p] = true, true
			pairs = append(pairs, [2]netip.Prefix{wide, p})
			list = append(list, p.Addr())
			if _, err := r.set.Add(wide); err != nil {
				t.Fatal(err)
			}
		}
		r.set.Reclaim()
		if err := r.ask(list); err != nil {
			t.Fatal(err)
		}

		var grace sync.RWMutex
		stop := make(chan struct{})
		var wg sync.WaitGroup
		runs := 0
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				grace.RLock()
				n, err := r.found(t.Context(), of.program)
				grace.RUnlock()
				if err != nil || n != memberPackets {
					t.Errorf("%s found %d of %d addresses: %v", of.program, n, memberPackets, err)
					return
				}
				runs++
			}
		})

		exchange := func(change func(netip.Prefix) (bool, error), p netip.Prefix) {
			_, err := change(p)
			if errors.Is(err, members.ErrFresh) || errors.Is(err, members.ErrFull) {
				grace.Lock() // the program has ended
				r.set.Reclaim()
				grace.Unlock()
				_, err = change(p)
			}
			if err != nil {
				t.Error(err)
			}
		}
		for range 300 {
			p := pairs[g.IntN(len(pairs))]
			in, out := p[0], p[1]
			if r.set.Has(in) {
				in, out = out, in
			}
			exchange(r.set.Add, in)
			exchange(r.set.Remove, out)
			for range 10 {
				if p := draw(); !held[p] {
					if r.set.Has(p) {
						exchange(r.set.Remove, p)
					} else {
						exchange(r.set.Add, p)
					}
				}
			}
		}
		close(stop)
		wg.Wait()
		t.Logf("%s: %d runs of %d packets", of.program, runs, memberPackets)
	}
}
