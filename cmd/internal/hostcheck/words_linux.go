package hostcheck

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/words"
)

// checkWords reports whether this process may take reserved words of the mirror's instance, and how many there are. It
// returns nothing if the instance has no socket for them.
func checkWords(mirror string) []probe.Result {
	socket := words.Path(mirror)
	r := probe.Result{Object: socket, Feature: "reserved words"}
	var st unix.Stat_t
	err := unix.Lstat(socket, &st)
	if errors.Is(err, unix.ENOENT) || err == nil && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil
	}
	var counted string
	if err == nil {
		counted, err = countWords(mirror)
	}
	if err != nil {
		r.Reason = err.Error()
		return []probe.Result{r}
	}

	group := strconv.Itoa(int(st.Gid))
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	r.Answer = probe.Yes
	r.Reason = fmt.Sprintf("%s; socket of mode %04o, group %s", counted, st.Mode&0o7777, group)
	if err := unix.Faccessat(unix.AT_FDCWD, socket, unix.W_OK, unix.AT_EACCESS); err != nil {
		r.Answer = probe.No
		r.Reason += ", which this process may not connect to"
		r.Fix = "run as root, or set mirror.words_mode and mirror.words_group, and join that group"
	}
	return []probe.Result{r}
}

// countWords counts the reserved words of a mirror by their state.
func countWords(mirror string) (string, error) {
	r, err := shm.OpenReader(mirror)
	if err != nil {
		return "", err
	}
	defer r.Close()
	entries, err := r.Entries()
	if err != nil {
		return "", err
	}

	reserved := 0
	countByMode := make(map[dataplane.Mode]int)
	for _, e := range entries {
		if mode, own := strings.CutPrefix(e.Source, "rdma:own/"); own {
			reserved++
			countByMode[dataplane.Mode(mode)]++
		}
	}
	return fmt.Sprintf("%d of %d reserved, %d in use, %d abandoned",
		reserved, dataplane.MostWords, countByMode[dataplane.ModeWords], countByMode[dataplane.ModeWordsAbandoned]), nil
}
