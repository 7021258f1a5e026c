package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
)

// loadConfig reads a configuration file. It adds a next step if the file is missing or is a directory.
func loadConfig(ctx context.Context, path string) (dataplane.Config, error) {
	cfg, _, err := loadNoted(ctx, path)
	return cfg, err
}

// loadNoted is like loadConfig, and also returns notes about the file.
func loadNoted(ctx context.Context, path string) (dataplane.Config, []configs.Note, error) {
	loaded, err := await(ctx, func() (configs.Loaded, error) { return configs.LoadNoted(path) })
	if err != nil && errors.Is(err, ctx.Err()) { // a signal ended the wait for the writer of a FIFO
		err = fmt.Errorf("%s: reading configuration: %w", path, err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = withHint(err, "check the path; configs/default.yaml of the source is a file to begin with, and make install copies it to /etc/flowtally.yaml")
	}
	return loaded.Config, loaded.Notes, directory(err)
}

// directory adds a next step if err says that a file is a directory.
func directory(err error) error {
	if errors.Is(err, syscall.EISDIR) {
		return withHint(err, "the path of a file in this directory")
	}
	return err
}
