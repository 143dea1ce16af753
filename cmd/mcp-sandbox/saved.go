package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"mcp-sandbox/sandbox"
)

// saveOutputs copies what was too large for a session's results, or is no picture that a
// model could see, into a directory, by the names under which it was kept.
func saveOutputs(ctx context.Context, sessions *sandbox.Sessions, who sandbox.Caller, id, dir string) error {
	return sessions.Visit(ctx, who, id, func(_ context.Context, s sandbox.Session) error {
		outputs, ok := s.(sandbox.Outputs)
		if !ok {
			return nil
		}
		var errs []error
		for _, o := range outputs.Outputs() {
			errs = append(errs, saveOutput(outputs, o, dir))
		}
		return errors.Join(errs...)
	})
}

func saveOutput(outputs sandbox.Outputs, o sandbox.Output, dir string) error {
	from, _, err := outputs.OpenOutput(o.N)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	to, err := os.Create(filepath.Join(dir, filepath.Base(o.Name))) // the name is ours: see sandbox.Outputs
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
