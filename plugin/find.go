package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/flowtally/flowtally/internal/trust"
)

// Find returns the path of the plugin's binary, as [Launch] finds it: path, if it is not empty; [BinaryName] in the
// directory of this program; [BinaryName] in $PATH. For root, Find fails with [ErrUntrusted] if another user could have
// written the binary.
func Find(path string) (string, error) {
	found, file, err := find(path)
	if err != nil {
		return "", err
	}
	if file != nil {
		file.Close()
	}
	return found, nil
}

// find is like Find, but for root it also returns the open binary. Execute that instead of the path, which might lead to
// another file by then. For other users file is nil.
func find(path string) (found string, file *os.File, err error) {
	if found, err = locate(path); err != nil {
		return "", nil, err
	}
	if file, err = openTrusted(found); err != nil {
		return "", nil, fmt.Errorf("finding the plugin: %w", err)
	}
	return found, file, nil
}

// locate returns the absolute path of the binary. It does not check who could have written it.
func locate(path string) (string, error) {
	if path != "" {
		abs, err := filepath.Abs(path)
		if err == nil {
			err = executable(abs)
		}
		if err != nil {
			return "", fmt.Errorf("finding the plugin: %w", err)
		}
		return abs, nil
	}

	var beside string
	if self, err := os.Executable(); err == nil {
		if resolved, err := filepath.EvalSymlinks(self); err == nil {
			self = resolved
		}
		beside = filepath.Join(filepath.Dir(self), BinaryName)
		err := executable(beside)
		if err == nil {
			return beside, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("finding the plugin: %w", err)
		}
	}

	found, err := exec.LookPath(BinaryName)
	if err != nil {
		return "", fmt.Errorf("finding the plugin: no %s and none called %s in $PATH: "+
			"install it there, or name its path: %w", beside, BinaryName, fs.ErrNotExist)
	}
	if found, err = filepath.Abs(found); err != nil {
		return "", fmt.Errorf("finding the plugin: %w", err)
	}
	return found, nil
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return executableFile(path, info)
}

func executableFile(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: name the plugin's binary", path)
	}
	if info.Mode()&0o111 == 0 {
		const step = "chmod 0755 " // with a bare +x others may still write it, and root refuses it next
		command := step + trust.Quote(path)
		return &stepError{fmt.Errorf("%s is not executable: %s", path, command), command}
	}
	return nil
}
