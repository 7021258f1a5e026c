package configs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/dataplane"
)

const (
	mostFragments = 1 << 16
	mostBytes     = 256 << 20 // for the main file, and again for all included files together
)

var (
	errUntrusted = errors.New("it is not read")
	errIrregular = errors.New("it is neither a regular file nor a directory")
	errOfKernel  = errors.New("it is a file that the kernel makes, as those of /proc and /sys")
	errTooMuch   = fmt.Errorf("the included files have more than %d MiB", mostBytes>>20)
)

// fragment is one file of a configuration, the main file or an included one, with the sections that every file may have.
type fragment struct {
	*decoder
	interfaces, flows, pairs *yaml.Node
}

// include reads the included files.
type include struct {
	main    string
	open    *opener
	info    os.FileInfo // of the main file
	allowed *allowance  // shared with the main file

	files []*fragment
	infos []os.FileInfo // of files
	names []string      // of files
	bytes int64         // of all files
	paths []string      // opened files and directories
}

// include reads the files of the field "include": a path or a list of paths, relative to the directory of the main file.
// Of a directory it reads the *.yaml files in the order of their names.
func (d *decoder) include(n *yaml.Node) []*fragment {
	in := &include{main: d.file, allowed: d.allowed}
	defer func() { d.paths = append(d.paths, in.paths...) }()
	if d.opened != nil {
		var err error
		if in.open, err = newOpener(d.opened); err == nil {
			in.info, err = d.opened.Stat()
		}
		if err != nil {
			d.bad(n, "include: "+err.Error(), "")
			return nil
		}
	}

	if n.Kind == yaml.ScalarNode {
		d.includePath(in, n, "include")
		return in.files
	}
	d.sequence(n, "include", func(i int, n *yaml.Node) { d.includePath(in, n, fmt.Sprintf("include[%d]", i)) })
	return in.files
}

// includePath reads one path. what names the field for messages.
func (d *decoder) includePath(in *include, n *yaml.Node, what string) {
	path, ok := d.scalar(n, what)
	switch {
	case !ok:
		return
	case path == "":
		d.bad(n, what+": the path is empty", "name a file, or a directory of *.yaml files")
		return
	case d.opened == nil:
		d.bad(n, what+": this configuration is not read from a file, and has no directory to look in", "write the flows out")
		return
	}

	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.file), path)
	}
	if err := in.path(path); err != nil {
		d.bad(n, fmt.Sprintf("%s: %v", what, err), includeFix(err))
	}
}

// includeFix returns the next step for an error of include.path.
func includeFix(err error) string {
	switch {
	case errors.Is(err, errUntrusted):
		return "name a file that the owner of this one can read, and that no third user can write, nor a directory above it"
	case errors.Is(err, os.ErrNotExist):
		return "check the path; it is relative to the directory of this file"
	case errors.Is(err, errIrregular), errors.Is(err, errOfKernel):
		return "name a file, or a directory of *.yaml files"
	}
	return ""
}

// path reads a file, or all files of a directory.
func (in *include) path(path string) error {
	f, err := in.open.open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in.paths = append(in.paths, path)
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return in.file(path, f, info)
	}

	entries, err := f.ReadDir(-1)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".yaml") && name[0] != '.' {
			if err := in.inDirectory(filepath.Join(path, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// inDirectory reads one file of a directory. It does not descend into subdirectories.
func (in *include) inDirectory(path string) error {
	f, err := in.open.open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	in.paths = append(in.paths, path)
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return in.file(path, f, info)
}

// file reads an open file. It reports a file included twice, even by different paths or links.
func (in *include) file(path string, f *os.File, info os.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w", path, errIrregular)
	case os.SameFile(info, in.info):
		return fmt.Errorf("%s: the file includes itself", path)
	case len(in.files) == mostFragments:
		return fmt.Errorf("%s: more than %d files are included", path, mostFragments)
	}
	for i, other := range in.infos {
		if os.SameFile(info, other) {
			return fmt.Errorf("%s: the file is included already, as %s", path, in.names[i])
		}
	}

	data, err := io.ReadAll(io.LimitReader(f, mostBytes-in.bytes+1))
	if err != nil {
		return err
	}
	if in.bytes += int64(len(data)); in.bytes > mostBytes {
		return errTooMuch
	}
	part := &fragment{decoder: newDecoder(path, data, fragmentFields)}
	part.allowed = in.allowed
	in.files = append(in.files, part)
	in.infos = append(in.infos, info)
	in.names = append(in.names, path)

	root := part.tree()
	if root != nil && part.plain(root) {
		part.sections(root, in.main)
	}
	return nil
}

// sections finds the sections of an included file. Other fields are errors, because settings belong in the main file.
func (f *fragment) sections(root *yaml.Node, main string) {
	f.fields(root, "the included file", func(key, value *yaml.Node) {
		section := map[string]**yaml.Node{
			"interfaces":  &f.interfaces,
			"flows":       &f.flows,
			"queue_pairs": &f.pairs,
		}[key.Value]
		switch {
		case section == nil:
			f.bad(key, fmt.Sprintf("an included file has no field %q", clip(key.Value)), "its fields are "+strings.Join(fragmentFields, ", ")+"; other settings are in "+main)
		case !isNull(value):
			*section = value
		}
	})
}

// place is a line in one of the files.
type place struct {
	file string
	line int
}

// from describes the place, for a message about the file of d.
func (p place) from(d *decoder) string {
	if p.file == d.file {
		return fmt.Sprintf("on line %d", p.line)
	}
	return fmt.Sprintf("on line %d of %s", p.line, p.file)
}

// entries decodes the sections of all files, beginning with the main file. sure says that the interfaces have no mistake.
// Only then can references to them be checked.
func entries(files []*fragment, cfg *dataplane.Config) (sure bool) {
	before := mistakes(files)
	firstInterface := make(map[string]place)
	for _, f := range files {
		if f.interfaces != nil {
			f.decoder.interfaces(f.interfaces, cfg, firstInterface)
		}
	}
	sure = mistakes(files) == before

	flows := 0
	for _, f := range files {
		if f.flows != nil {
			flows += len(f.flows.Content)
		}
	}
	firstFlow := make(map[string]place, flows)
	cfg.Flows = slices.Grow(cfg.Flows, flows)
	for _, f := range files {
		if f.flows != nil {
			f.decoder.flows(f.flows, cfg, sure, firstFlow)
		}
	}

	queuePairs(files, cfg)
	return sure
}

// mistakes returns the number of mistakes in all files.
func mistakes(files []*fragment) (n int) {
	for _, f := range files {
		n += f.count
	}
	return n
}
