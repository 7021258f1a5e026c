package xdprows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/xdp/fold"
	"github.com/flowtally/flowtally/xdp/members"
)

// memberPackets is the length of a trace of addresses (bpf/members.bpf.c).
const memberPackets = 1 << 16

// memberSet is a set of prefixes and the addresses that programs ask for.
type memberSet struct {
	prefixes []netip.Prefix
	has      func(netip.Addr) bool
}

// newMemberSet returns a set of n prefixes from draw, each once.
func newMemberSet(n int, draw memberDraw) memberSet {
	g := rand.New(rand.NewPCG(seed, 7))
	is := make(map[netip.Prefix]bool, n)
	list := make([]netip.Prefix, 0, n)
	var lengths []int
	seen := make(map[int]bool)
	for len(list) < n {
		p := draw(g).Masked()
		if is[p] {
			continue
		}
		is[p] = true
		list = append(list, p)
		if !seen[p.Bits()] {
			seen[p.Bits()] = true
			lengths = append(lengths, p.Bits())
		}
	}
	return memberSet{list, func(a netip.Addr) bool {
		for _, length := range lengths {
			if p, err := a.Prefix(length); err == nil && is[p] {
				return true
			}
		}
		return false
	}}
}

// addresses draws a trace.
func (s memberSet) addresses(kind string) []netip.Addr {
	g := rand.New(rand.NewPCG(seed, 8))
	list := make([]netip.Addr, 0, memberPackets)
	for len(list) < memberPackets {
		p := s.prefixes[g.IntN(len(s.prefixes))]
		b := p.Addr().AsSlice()
		for i := p.Bits(); i < 8*len(b); i++ {
			if g.IntN(2) == 0 {
				b[i/8] ^= 0x80 >> (i % 8)
			}
		}
		switch {
		case kind == packetsMiss && len(b) == 4:
			binary.BigEndian.PutUint32(b, unicast(g))
		case kind == packetsMiss:
			binary.BigEndian.PutUint64(b, 0x2000_0000_0000_0000|g.Uint64()>>3)
		case kind == packetsNear:
			b[len(b)-1] ^= byte(32 << g.IntN(3))
		}
		a, _ := netip.AddrFromSlice(b)
		if s.has(a) == (kind == packetsHit) {
			list = append(list, a)
		}
	}
	return list
}

// memberRig is the object of bpf/members.bpf.c with a set, a trace, and memory for the tables.
type memberRig struct {
	coll  *ebpf.Collection
	words []uint64 // of ours
	other []uint64 // of the other candidates
	set   *members.Set
	c     members.Constants
	mem   [][]byte
}

const (
	memberRoot    = 1
	memberTables  = 8
	memberMaxSets = 64 // FT_MAX_SETS
)

// memberSections are the sections that have the size of the set.
type memberSections struct {
	shape  members.Shape
	other  int                   // words of the other candidates
	layout *membersMembersLayout // of the other candidates; nil: none
	keep   bool                  // the answers are kept
}

// newMemberRig loads the programs, with empty tables.
func newMemberRig(o memberSections) (_ *memberRig, err error) {
	spec, err := loadMembers()
	if err != nil {
		return nil, fmt.Errorf("reading the object of the sets: %w", err)
	}
	n, err := o.shape.Words()
	if err != nil {
		return nil, err
	}
	total := memberTables + n + members.Tail
	sections := make(map[string]*ebpf.Map)
	for section, words := range map[string]int{".data.members": total, ".data.words": o.other + members.Tail} {
		m := spec.Maps[section]
		m.ValueSize, m.Flags, m.Contents = uint32(words*8), unix.BPF_F_MMAPABLE, nil
		m.Key, m.Value = nil, nil
		if sections[section], err = ebpf.NewMap(m); err != nil {
			return nil, fmt.Errorf("creating the memory %s of %d words: %w", section, words, err)
		}
		defer sections[section].Close()
	}
	delete(spec.Variables, "ft_members")
	delete(spec.Variables, "members_words")

	r := &memberRig{}
	secret := members.NewSecret()
	r.c = o.shape.Constants(secret, memberRoot)
	sets := [memberMaxSets]members.Constants{r.c}
	err = errors.Join(spec.Variables["ft_sets"].Set(sets), spec.Variables["ft_members_last"].Set(members.Last(total)))
	if err != nil {
		return nil, fmt.Errorf("setting the constants of a set: %w", err)
	}
	if o.layout != nil {
		if err := spec.Variables["members_l"].Set(o.layout); err != nil {
			return nil, fmt.Errorf("setting the constants of the candidates: %w", err)
		}
	}
	if o.keep {
		if err := spec.Variables["members_keep"].Set(uint32(1)); err != nil {
			return nil, fmt.Errorf("setting the constants of the trace: %w", err)
		}
	}
	// As package xdp loads its programs.
	for name, p := range spec.Programs {
		for _, constants := range []string{"ft_sets", "ft_members_last", "members_l", "members_keep"} {
			if p.Instructions, err = fold.Program(p.Instructions, spec.Variables[constants]); err != nil {
				return nil, fmt.Errorf("folding the constants %s of program %s: %w", constants, name, err)
			}
		}
	}
	r.coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: sections})
	if err != nil {
		return nil, fmt.Errorf("loading the object of the sets: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.words, err = r.view(".data.members"); err != nil {
		return nil, err
	}
	if r.other, err = r.view(".data.words"); err != nil {
		return nil, err
	}
	r.words = r.words[:total]
	if r.set, err = members.New(r.words, memberTables, o.shape, secret); err != nil {
		return nil, err
	}
	r.set.Publish(memberRoot)
	return r, nil
}

// view maps the value of a map.
func (r *memberRig) view(name string) ([]uint64, error) {
	m := r.coll.Maps[name]
	size := int(m.ValueSize()) * int(m.MaxEntries())
	page := unix.Getpagesize()
	mem, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping map %s: %w", name, err)
	}
	r.mem = append(r.mem, mem)
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/8), nil
}

// fill adds the prefixes to our set.
func (r *memberRig) fill(list []netip.Prefix) error {
	for _, p := range list {
		if _, err := r.set.Add(p); err != nil {
			return err
		}
	}
	r.set.Reclaim() // no program has run
	return nil
}

// fillTrie adds the prefixes to the kernel's tries.
func (r *memberRig) fillTrie(list []netip.Prefix) error {
	var keys4 []membersMembersKey4
	var keys6 []membersMembersKey6
	for _, p := range list {
		b := p.Addr().AsSlice()
		if len(b) == 4 {
			keys4 = append(keys4, membersMembersKey4{Bits: uint32(p.Bits()), Address: binary.NativeEndian.Uint32(b)})
			continue
		}
		k := membersMembersKey6{Bits: uint32(p.Bits())}
		for i := range k.Address {
			k.Address[i] = binary.NativeEndian.Uint32(b[4*i:])
		}
		keys6 = append(keys6, k)
	}
	if len(keys4) > 0 {
		if _, err := r.coll.Maps["members_lpm4"].BatchUpdate(keys4, make([]byte, len(keys4)), nil); err != nil {
			return fmt.Errorf("filling the LPM trie: %w", err)
		}
	}
	if len(keys6) > 0 {
		if _, err := r.coll.Maps["members_lpm6"].BatchUpdate(keys6, make([]byte, len(keys6)), nil); err != nil {
			return fmt.Errorf("filling the LPM trie: %w", err)
		}
	}
	return nil
}

// ask makes the programs ask for addresses, at most memberPackets.
func (r *memberRig) ask(list []netip.Addr) error {
	keys := make([]uint32, memberPackets)
	values := make([]membersMembersPacket, memberPackets)
	for i := range keys {
		keys[i] = uint32(i)
		a := list[i%len(list)]
		if a.Is4() {
			b := a.As4()
			values[i].Lo = uint64(binary.BigEndian.Uint32(b[:]))
			continue
		}
		b := a.As16()
		values[i].Hi, values[i].Lo = binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])
	}
	if _, err := r.coll.Maps["members_packets"].BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("filling the trace of addresses: %w", err)
	}
	return nil
}

// side asks for the addresses of the trace, one after the other.
func (r *memberRig) side(program string) bench.Side {
	return repeated(r.coll.Programs[program], frame(0))
}

// found runs a program once over the trace, and returns how many addresses it found in the set.
func (r *memberRig) found(ctx context.Context, program string) (uint64, error) {
	var before, after uint64
	m := r.coll.Maps[".data.found"]
	if err := m.Lookup(uint32(0), &before); err != nil {
		return 0, fmt.Errorf("reading the number of addresses in the set: %w", err)
	}
	if _, err := r.side(program)(ctx, memberPackets); err != nil {
		return 0, err
	}
	err := m.Lookup(uint32(0), &after)
	return after - before, err
}

func (r *memberRig) close() error {
	r.coll.Close()
	var errs []error
	for _, mem := range r.mem {
		errs = append(errs, unix.Munmap(mem))
	}
	return errors.Join(errs...)
}

// openMembers compares the cost of an address in our set with that in the kernel's LPM trie, both above a program without either.
func openMembers(n int, draw memberDraw, kind string) opener {
	return lazily(func() opener {
		s := newMemberSet(n, draw)
		list := s.addresses(kind)
		return func(ctx context.Context, _ bench.Env) (*bench.Sides, error) {
			return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
				shape, version := members.Shape{IPv4: n}, "4"
				if list[0].Is6() {
					shape, version = members.Shape{IPv6: n}, "6"
				}
				r, err := newMemberRig(memberSections{shape: shape})
				if err != nil {
					return nil, err
				}
				open.Add(r.close)
				if err := errors.Join(r.fill(s.prefixes), r.fillTrie(s.prefixes), r.ask(list)); err != nil {
					return nil, err
				}

				ours, trie := "members_ours"+version, "members_trie"+version
				for _, program := range []string{ours, trie} {
					found, err := r.found(ctx, program)
					if err != nil {
						return nil, err
					}
					if want := map[bool]uint64{true: memberPackets}[kind == packetsHit]; found != want {
						return nil, fmt.Errorf("%s found %d addresses of the trace in the set, and should find %d", program, found, want)
					}
				}
				return &bench.Sides{
					Ours:      r.side(ours),
					Base:      r.side("members_none"),
					Ref:       bench.Fewer(8, r.side(trie)),
					N:         memberPackets / 2, // the addresses are random, so any part costs the same
					MaxSpread: 0.3,
				}, nil
			})
		}
	})
}

// openMemberChange removes and adds elements of a set of many prefixes, and of one of few.
func openMemberChange(many, few int) opener {
	return lazily(func() opener {
		s := newMemberSet(many, listed)
		return func(context.Context, bench.Env) (*bench.Sides, error) {
			return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
				changes := func(list []netip.Prefix) (bench.Side, error) {
					r, err := newMemberRig(memberSections{shape: members.Shape{IPv4: len(list)}})
					if err != nil {
						return nil, err
					}
					open.Add(r.close)
					at := 0
					return timed(func(_ context.Context, n int) error {
						for range n {
							p := list[at/2%len(list)]
							change := r.set.Remove
							if at%2 == 1 {
								change = r.set.Add
							}
							if _, err := change(p); err != nil {
								return err
							}
							r.set.Reclaim() // no program runs
							at++
						}
						return nil
					}), r.fill(list)
				}
				ours, err := changes(s.prefixes)
				if err != nil {
					return nil, err
				}
				ref, err := changes(s.prefixes[:few])
				if err != nil {
					return nil, err
				}
				return &bench.Sides{
					Ours:      ours,
					Ref:       ref,
					N:         2000,
					MaxSpread: 0.5,
				}, nil
			})
		}
	})
}

// openMemberLoad fills our set, and the kernel's LPM trie.
func openMemberLoad(n int) opener {
	return lazily(func() opener {
		s := newMemberSet(n, listed)
		load := func(fill func(*memberRig) error) bench.Side {
			return timed(func(context.Context, int) error {
				r, err := newMemberRig(memberSections{shape: members.Shape{IPv4: n}})
				if err != nil {
					return err
				}
				return errors.Join(fill(r), r.close())
			})
		}
		return func(context.Context, bench.Env) (*bench.Sides, error) {
			return &bench.Sides{
				Ours:      load(func(r *memberRig) error { return r.fill(s.prefixes) }),
				Ref:       load(func(r *memberRig) error { return r.fillTrie(s.prefixes) }),
				N:         1,
				MaxSpread: 0.5,
			}, nil
		}
	})
}
