package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"mcp-sandbox/srt"
)

// packageFlags say what Python can import besides what its interpreter has.
type packageFlags struct {
	Requirements             string `placeholder:"FILE" type:"path" help:"Packages for the code: a virtual environment is made of this file once, outside the wall, by uv or else pip, and kept. Wheels only."`
	CacheDir                 string `placeholder:"DIR" type:"path" help:"Directory for such environments; usually mcp-sandbox in the user's cache directory."`
	DangerouslyBuildPackages bool   `name:"dangerously-build-packages" help:"Packages of --requirements may come as source, whose code then runs here, outside the wall, when they are installed."`
}

func (f packageFlags) check() error {
	if f.Requirements == "" {
		if f.DangerouslyBuildPackages {
			return errors.New("--dangerously-build-packages needs --requirements")
		}
		return nil // where the cache is may be set for all
	}
	info, err := os.Stat(f.Requirements)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", f.Requirements)
	}
	if err != nil {
		return fmt.Errorf("--requirements: %w", err)
	}
	return nil
}

// cache is the directory in which environments are kept.
func (f packageFlags) cache() (string, error) {
	if f.CacheDir != "" {
		return f.CacheDir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the packages of --requirements: %w: give --cache-dir", err)
	}
	return filepath.Join(dir, "mcp-sandbox"), nil
}

// without takes the flags away where no Python runs that they are for.
func (f packageFlags) without(log *slog.Logger) packageFlags {
	if f.Requirements != "" {
		log.Warn("--requirements has no effect: Python runs remotely, with the packages of its image")
	}
	return packageFlags{}
}

// makeEnvironment is the interpreter that has the packages. What is done is told line by
// line; it may take minutes, once.
func makeEnvironment(ctx context.Context, cfg localConfig) (string, error) {
	cache, err := cfg.cache()
	if err != nil {
		return "", err
	}
	if cfg.DangerouslyBuildPackages {
		cfg.log.Warn("packages may run their code outside the wall when they are installed", "by", "--dangerously-build-packages")
	}
	c, err := cfg.config()
	if err != nil {
		return "", err
	}
	return srt.MakeEnvironment(ctx, c, srt.Environment{
		Requirements: cfg.Requirements, Cache: cache, Variables: os.Environ(), DangerouslyBuild: cfg.DangerouslyBuildPackages,
		Progress: func(line string) { cfg.told.Info("packages: " + line) },
	})
}
