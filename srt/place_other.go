//go:build !linux

package srt

import "os"

func holdPlace(host string) (*os.File, error) { return os.Open(host) }

func (*Local) samePlaces() error { return errNoNative }
